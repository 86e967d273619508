// Statements.
#include "text/chat_template/evaluator.h"

#include <algorithm>

#include "text/chat_template/operations.h"
#include "text/chat_template/python.h"

namespace bie::text::chat {

void Scope::set(int symbol, Value value) {
  for (auto& [other, old] : values) {
    if (other != symbol) continue;
    old = std::move(value);
    return;
  }
  values.emplace_back(symbol, std::move(value));
}

Evaluator::~Evaluator() {
  for (const ScopePtr& scope : kept_) scope->values.clear();
}

void Evaluator::keep(const ScopePtr& scope) {
  constexpr std::size_t bytes = 256;
  if (!kept_.empty() && kept_.back() == scope) return;
  runtime_.meter.hold(bytes);
  kept_.push_back(scope);
}

MarkedText Evaluator::run() {
  const auto scope = std::make_shared<Scope>(nullptr);
  keep(scope);
  return captured(program_.body, scope).first;
}

std::pair<MarkedText, Evaluator::Flow> Evaluator::captured(const Block& block, const ScopePtr& scope) {
  MarkedText text;
  MarkedText* const outer = std::exchange(out_, &text);
  const Flow flow = execute(block, scope);
  out_ = outer;
  return {std::move(text), flow};
}

void Evaluator::write(const MarkedText& text) {
  runtime_.meter.write(text.size());
  runtime_.meter.check_text(out_->size() + text.size());
  out_->append(text);
}

Evaluator::Flow Evaluator::execute(const Block& block, const ScopePtr& scope) {
  const Level level(runtime_);
  for (const auto& statement : block) {
    const Flow flow = execute(*statement, scope);
    if (flow != Flow::goes_on) return flow;
  }
  return Flow::goes_on;
}

Evaluator::Flow Evaluator::execute(const Statement& statement, const ScopePtr& scope) {
  line_ = statement.line;
  runtime_.meter.step();
  switch (statement.kind) {
    case StatementKind::text: write(statement.text.text()); break;
    case StatementKind::output: output(statement, scope); break;
    case StatementKind::condition: return condition(statement, scope);
    case StatementKind::loop: return loop(statement, scope);
    case StatementKind::set: set(statement, scope); break;
    case StatementKind::set_block: return set_block(statement, scope);
    case StatementKind::macro: scope->set(statement.symbol, macro(*statement.macro, scope)); break;
    case StatementKind::call_block: call_block(statement, scope); break;
    case StatementKind::filter_block: return filter_block(statement, scope);
    case StatementKind::with: return with(statement, scope);
    case StatementKind::scope: return execute(statement.blocks[0], std::make_shared<Scope>(scope));
    case StatementKind::leave: return Flow::leaves;
    case StatementKind::next: return Flow::next;
  }
  return Flow::goes_on;
}

void Evaluator::output(const Statement& statement, const ScopePtr& scope) {
  for (const auto& expression : statement.expressions) {
    const Value value = evaluate(*expression, scope);
    line_ = statement.line;
    if (value.is(Kind::string))
      write(value.text());
    else
      write(shown(runtime_, value));
  }
}

Evaluator::Flow Evaluator::condition(const Statement& statement, const ScopePtr& scope) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i)
    if (truth(evaluate(*statement.expressions[i], scope))) return execute(statement.blocks[i], scope);
  if (statement.blocks.size() > statement.expressions.size()) return execute(statement.blocks.back(), scope);
  return Flow::goes_on;
}

Evaluator::Flow Evaluator::loop(const Statement& statement, const ScopePtr& scope) {
  const Value iterable = evaluate(*statement.expressions[0], scope);
  return loop_over(statement, scope, iterable, 0);
}

std::vector<Value> Evaluator::loop_items(const Statement& statement, const ScopePtr& scope, const Value& iterable) {
  std::vector<Value> all = items_of(runtime_, iterable);
  const Expression* const filter = statement.expressions[1].get();
  if (filter == nullptr) return all;
  std::vector<Value> items;
  for (const Value& value : all) {
    const auto inner = std::make_shared<Scope>(scope);
    assign(statement.targets[0], value, inner);
    if (truth(evaluate(*filter, inner))) items.push_back(value);
  }
  return items;
}

Evaluator::Flow Evaluator::loop_over(const Statement& statement, const ScopePtr& scope, const Value& iterable,
                                     int depth) {
  const auto loop = std::make_shared<Loop>();
  loop->items = loop_items(statement, scope, iterable);
  loop->depth = depth;
  if (statement.is_recursive) {
    keep(scope);
    loop->recurse = [this, &statement, scope, depth](Runtime& runtime, const Value& children) {
      MarkedText text;
      MarkedText* const outer = std::exchange(out_, &text);
      loop_over(statement, scope, children, depth + 1);
      out_ = outer;
      return runtime.string(std::move(text));
    };
  }
  const Value loop_value = Value::object(Kind::loop, loop);
  bool is_whole = false;  // jinja2 takes a body that `break` or `continue` leaves for none
  for (; loop->at < loop->items.size(); ++loop->at) {
    runtime_.meter.step();
    const auto inner = std::make_shared<Scope>(scope);
    inner->set(program_.loop, loop_value);
    assign(statement.targets[0], loop->items[loop->at], inner);
    const Flow flow = execute(statement.blocks[0], inner);
    is_whole = is_whole || flow == Flow::goes_on;
    if (flow == Flow::leaves) break;
  }
  if (is_whole || statement.blocks.size() == 1) return Flow::goes_on;
  return execute(statement.blocks[1], std::make_shared<Scope>(scope));
}

Evaluator::Flow Evaluator::with(const Statement& statement, const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  for (std::size_t i = 0; i < statement.targets.size(); ++i)
    assign(statement.targets[i], evaluate(*statement.expressions[i], scope), inner);
  return execute(statement.blocks[0], inner);
}

void Evaluator::set(const Statement& statement, const ScopePtr& scope) {
  const Value value = evaluate(*statement.expressions[0], scope);
  line_ = statement.line;
  assign(statement.targets[0], value, scope);
}

Evaluator::Flow Evaluator::set_block(const Statement& statement, const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  auto [text, flow] = captured(statement.blocks[0], inner);
  if (flow != Flow::goes_on) return flow;
  Value value = runtime_.string(std::move(text));
  if (statement.expressions[0] != nullptr) value = filter(*statement.expressions[0], inner, &value);
  assign(statement.targets[0], value, scope);
  return Flow::goes_on;
}

Evaluator::Flow Evaluator::filter_block(const Statement& statement, const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  auto [text, flow] = captured(statement.blocks[0], inner);
  if (flow != Flow::goes_on) return flow;
  const Value value = runtime_.string(std::move(text));
  write(shown(runtime_, filter(*statement.expressions[0], inner, &value)));
  return Flow::goes_on;
}

void Evaluator::call_block(const Statement& statement, const ScopePtr& scope) {
  const Value caller = macro(*statement.macro, scope);
  write(shown(runtime_, call(*statement.expressions[0], scope, &caller)));
}

void Evaluator::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  runtime_.meter.step(1 + scope->values.size() / 32);
  if (target.is_tuple) {
    const std::vector<Value> values = items_of(runtime_, value);
    if (values.size() != target.parts.size())
      refuse("expected ", target.parts.size(), " values to unpack, got ", values.size());
    for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i], scope);
    return;
  }
  if (target.attribute.empty()) return scope->set(target.symbol, value);
  Expression name{ExpressionKind::name, line_};
  name.symbol = target.symbol;
  const Value names = look_up(name, scope);
  if (!names.is(Kind::names)) refuse("cannot assign attribute on non-namespace object");
  if (target.attribute[0] == '_') refuse("expected an attribute of a namespace without an underscore in front");
  runtime_.meter.step(names.names().all.size() / 32);
  names.names().set(target.attribute, value);
}

}  // namespace bie::text::chat
