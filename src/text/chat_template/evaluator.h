// Runs a program.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "text/chat_template/runtime.h"
#include "text/chat_template/syntax.h"

namespace bie::text::chat {

/// Names that one body has set, and the scope around it.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> p) : parent(std::move(p)) {}
  const std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> values;
  void set(int symbol, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

class Evaluator {
 public:
  /// @param globals  by symbol; none where a name has no value.
  Evaluator(const Program& program, Runtime& runtime, std::vector<std::optional<Value>> globals)
      : program_(program), runtime_(runtime), globals_(std::move(globals)) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;
  ~Evaluator();

  MarkedText run();
  /// The line of what is evaluated.
  int line() const { return line_; }

 private:
  enum class Flow : std::uint8_t { goes_on, leaves, next };

  Flow execute(const Block& block, const ScopePtr& scope);
  Flow execute(const Statement& statement, const ScopePtr& scope);
  Flow condition(const Statement& statement, const ScopePtr& scope);
  Flow loop(const Statement& statement, const ScopePtr& scope);
  Flow loop_over(const Statement& statement, const ScopePtr& scope, const Value& iterable, int depth);
  std::vector<Value> loop_items(const Statement& statement, const ScopePtr& scope, const Value& iterable);
  Flow with(const Statement& statement, const ScopePtr& scope);
  void output(const Statement& statement, const ScopePtr& scope);
  void set(const Statement& statement, const ScopePtr& scope);
  Flow set_block(const Statement& statement, const ScopePtr& scope);
  Flow filter_block(const Statement& statement, const ScopePtr& scope);
  void call_block(const Statement& statement, const ScopePtr& scope);
  void write(const MarkedText& text);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  /// Returns what the block writes.
  std::pair<MarkedText, Flow> captured(const Block& block, const ScopePtr& scope);

  Value macro(const Macro& macro, const ScopePtr& scope);
  Value call_macro(const Macro& macro, const ScopePtr& scope, Arguments& arguments);
  /// Sets caller, kwargs and varargs where the macro mentions them, and refuses arguments that are left over.
  void set_rest(const Macro& macro, const ScopePtr& inner, Arguments& arguments, std::size_t taken);

  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value evaluate_inner(const Expression& expression, const ScopePtr& scope);
  Value look_up(const Expression& name, const ScopePtr& scope);
  std::vector<Value> parts(const Expression& expression, const ScopePtr& scope);
  Value dict(const Expression& expression, const ScopePtr& scope);
  Value slice(const Expression& expression, const ScopePtr& scope);
  Value compare(const Expression& expression, const ScopePtr& scope);
  Value condition(const Expression& expression, const ScopePtr& scope);
  Value call(const Expression& expression, const ScopePtr& scope, const Value* caller = nullptr);
  Value filter(const Expression& expression, const ScopePtr& scope, const Value* block = nullptr);
  Arguments arguments(const CallArguments& arguments, const ScopePtr& scope);

  /// Remembers a scope that a value may hold, so that the two of them do not keep each other.
  void keep(const ScopePtr& scope);

  const Program& program_;
  Runtime& runtime_;
  const std::vector<std::optional<Value>> globals_;
  std::vector<ScopePtr> kept_;
  MarkedText* out_ = nullptr;
  int line_ = 1;
};

}  // namespace bie::text::chat
