// A template's statements and expressions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/chat_template/value.h"

namespace bie::text::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr rest, rest_named;  ///< behind * and **; may be null
};

enum class ExpressionKind : std::uint8_t {
  constant,
  name,
  attribute_name,  ///< `namespace.name` as a target
  list,
  tuple,
  dict,       ///< keys and values in turn
  attribute,  ///< of part 0
  item,       ///< part 0 [part 1]
  slice,      ///< part 0 [1 : 2 : 3], any but 0 may be null
  call,       ///< of part 0
  filter,     ///< of part 0, which is null in a filter of a block
  test,       ///< of part 0
  unary,
  binary,
  concat,   ///< ~
  compare,  ///< part 0, then each with its operator
  logic_not,
  logic_and,
  logic_or,
  condition,  ///< part 1 if part 0 else part 2, which may be null
};

struct Expression {
  ExpressionKind kind;
  int line;
  int depth = 1;
  int symbol = -1;        ///< a name's
  std::string text = {};  ///< an attribute, a filter, a test, an operator
  Value value = {};       ///< a constant
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::string> operators = {};  ///< of a comparison
  CallArguments arguments = {};
};

/// Where a value goes: a name, an attribute of a namespace, or several of them.
struct Target {
  int symbol = -1;
  std::string attribute;
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Macro {
  std::string name;
  std::vector<std::pair<int, std::string>> parameters;
  std::vector<ExpressionPtr> defaults;  ///< of the last parameters
  Block body;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

enum class StatementKind : std::uint8_t {
  text,
  output,
  condition,
  loop,
  set,
  set_block,
  macro,
  call_block,
  filter_block,
  with,
  scope,
  leave,  ///< break
  next,   ///< continue
};

struct Statement {
  StatementKind kind;
  int line;
  Value text = {};
  std::vector<ExpressionPtr> expressions =
      {};                          ///< output's; conditions; the loop's values and its filter; with's values
  std::vector<Block> blocks = {};  ///< a body, of conditions one for each; then else
  std::vector<Target> targets = {};
  std::unique_ptr<const Macro> macro = {};
  int symbol = -1;  ///< a macro's
  bool is_recursive = false;
};

/// Numbers of the names that a template mentions.
class Symbols {
 public:
  int of(const std::string& name) {
    const auto [place, is_new] = numbers_.try_emplace(name, static_cast<int>(names_.size()));
    if (is_new) names_.push_back(name);
    return place->second;
  }
  /// -1 for a name that no one mentions.
  int find(const std::string& name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? -1 : found->second;
  }
  const std::string& name(int symbol) const { return names_[static_cast<std::size_t>(symbol)]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> names_;
};

struct Program {
  Symbols symbols;
  Block body;
  int loop, caller, varargs, kwargs;  ///< symbols of names that mean something
};

/// @throws RefusalAt: syntax that is not read.
Program parse(std::string_view source);

}  // namespace bie::text::chat
