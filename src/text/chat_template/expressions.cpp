// Expressions and calls.
#include <algorithm>

#include "text/chat_template/evaluator.h"
#include "text/chat_template/filters.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/python.h"

namespace bie::text::chat {

Value Evaluator::look_up(const Expression& name, const ScopePtr& scope) {
  for (const Scope* at = scope.get(); at != nullptr; at = at->parent.get()) {
    runtime_.meter.step(at->values.size() / 32);
    for (const auto& [symbol, value] : at->values)
      if (symbol == name.symbol) return value;
  }
  const auto& global = globals_[static_cast<std::size_t>(name.symbol)];
  if (global) return *global;
  return runtime_.undefined(formats::joined("'", program_.symbols.name(name.symbol), "' is undefined"));
}

Value Evaluator::evaluate(const Expression& expression, const ScopePtr& scope) {
  const Level level(runtime_);
  line_ = expression.line;
  return evaluate_inner(expression, scope);
}

std::vector<Value> Evaluator::parts(const Expression& expression, const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(expression.parts.size());
  for (const auto& part : expression.parts) values.push_back(evaluate(*part, scope));
  line_ = expression.line;
  return values;
}

Value Evaluator::evaluate_inner(const Expression& expression, const ScopePtr& scope) {
  const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::constant: return expression.value;
    case ExpressionKind::name: return look_up(expression, scope);
    case ExpressionKind::list: return runtime_.list(parts(expression, scope));
    case ExpressionKind::tuple: return runtime_.tuple(parts(expression, scope));
    case ExpressionKind::dict: return dict(expression, scope);
    case ExpressionKind::attribute: {
      const Value value = part(0);
      line_ = expression.line;
      return attribute(runtime_, value, expression.text);
    }
    case ExpressionKind::item: {
      const std::vector<Value> values = parts(expression, scope);
      return item(runtime_, values[0], values[1]);
    }
    case ExpressionKind::slice: return slice(expression, scope);
    case ExpressionKind::call: return call(expression, scope);
    case ExpressionKind::filter: return filter(expression, scope);
    case ExpressionKind::test: {
      const Value value = part(0);
      Arguments given = arguments(expression.arguments, scope);
      line_ = expression.line;
      return Value::of(passes_test(runtime_, expression.text, value, given), true);
    }
    case ExpressionKind::unary: return unary(expression.text, part(0));
    case ExpressionKind::binary: {
      const std::vector<Value> values = parts(expression, scope);
      return binary(runtime_, expression.text, values[0], values[1]);
    }
    case ExpressionKind::concat: return concat(runtime_, parts(expression, scope));
    case ExpressionKind::compare: return compare(expression, scope);
    case ExpressionKind::logic_not: return Value::of(!truth(part(0)), true);
    case ExpressionKind::logic_and: {
      Value left = part(0);
      return truth(left) ? part(1) : left;
    }
    case ExpressionKind::logic_or: {
      Value left = part(0);
      return truth(left) ? left : part(1);
    }
    case ExpressionKind::condition: return condition(expression, scope);
    case ExpressionKind::attribute_name: break;
  }
  refuse("expected a value, got the name of an attribute");
}

Value Evaluator::condition(const Expression& expression, const ScopePtr& scope) {
  if (truth(evaluate(*expression.parts[0], scope))) return evaluate(*expression.parts[1], scope);
  if (expression.parts[2] != nullptr) return evaluate(*expression.parts[2], scope);
  return runtime_.undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Evaluator::dict(const Expression& expression, const ScopePtr& scope) {
  const std::vector<Value> values = parts(expression, scope);
  Dict::Entries entries;
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) entries.emplace_back(values[i], values[i + 1]);
  return runtime_.dict(entries);
}

Value Evaluator::slice(const Expression& expression, const ScopePtr& scope) {
  const auto part = [&](std::size_t i) {
    return expression.parts[i] == nullptr ? Value::none() : evaluate(*expression.parts[i], scope);
  };
  const Value value = part(0), begin = part(1), end = part(2), step = part(3);
  line_ = expression.line;
  return chat::slice(runtime_, value, begin, end, step);
}

Value Evaluator::compare(const Expression& expression, const ScopePtr& scope) {
  Value left = evaluate(*expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1], scope);
    line_ = expression.line;
    if (!chat::compare(runtime_, expression.operators[i], left, right)) return Value::of(false, true);
    left = std::move(right);
  }
  return Value::of(true, true);
}

Arguments Evaluator::arguments(const CallArguments& given, const ScopePtr& scope) {
  Arguments result;
  for (const auto& part : given.positional) result.positional.push_back(evaluate(*part, scope));
  for (const auto& [name, part] : given.named) result.named.emplace_back(name, evaluate(*part, scope));
  if (given.rest != nullptr)
    for (Value& value : items_of(runtime_, evaluate(*given.rest, scope))) result.positional.push_back(std::move(value));
  if (given.rest_named == nullptr) return result;
  const Value named = evaluate(*given.rest_named, scope);
  if (!named.is(Kind::dict)) refuse("argument after ** must be a mapping, not ", type_name(named));
  for (const auto& [key, value] : named.dict().entries) {
    if (!key.is(Kind::string)) refuse("keywords must be strings");
    for (const auto& [other, old] : result.named)
      if (other == key.bytes()) refuse("got several values of the argument ", formats::in_quotes(other));
    runtime_.meter.step(1 + result.named.size());
    result.named.emplace_back(key.bytes(), value);
  }
  return result;
}

Value Evaluator::call(const Expression& expression, const ScopePtr& scope, const Value* caller) {
  const Value callee = evaluate(*expression.parts[0], scope);
  Arguments given = arguments(expression.arguments, scope);
  if (caller != nullptr) given.named.emplace_back("caller", *caller);
  line_ = expression.line;
  return runtime_.call(callee, given);
}

Value Evaluator::filter(const Expression& expression, const ScopePtr& scope, const Value* block) {
  const Expression* const subject = expression.parts[0].get();
  Value value;
  if (subject == nullptr)
    value = *block;
  else
    value = subject->kind == ExpressionKind::filter ? filter(*subject, scope, block) : evaluate(*subject, scope);
  Arguments given = arguments(expression.arguments, scope);
  line_ = expression.line;
  runtime_.meter.step();
  return apply_filter(runtime_, expression.text, value, given);
}

Value Evaluator::macro(const Macro& macro, const ScopePtr& scope) {
  keep(scope);
  auto function = std::make_shared<Function>(
      macro.name, [this, &macro, scope](Runtime&, Arguments& given) { return call_macro(macro, scope, given); });
  function->attributes.emplace_back("name", runtime_.string(macro.name, true));
  function->shown = formats::joined("<Macro '", macro.name, "'>");
  return Value::object(Kind::function, std::move(function));
}

Value Evaluator::call_macro(const Macro& macro, const ScopePtr& scope, Arguments& given) {
  const auto inner = std::make_shared<Scope>(scope);
  const std::size_t count = macro.parameters.size();
  const std::size_t taken = std::min(given.positional.size(), count);
  runtime_.meter.step(count + given.named.size());
  std::vector<bool> is_set(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int symbol = macro.parameters[i].first;
    const std::string& name = macro.parameters[i].second;
    const auto named =
        std::find_if(given.named.begin(), given.named.end(), [&](const auto& n) { return n.first == name; });
    is_set[i] = i < taken || named != given.named.end();
    if (i < taken) {
      inner->set(symbol, given.positional[i]);
    } else if (named != given.named.end()) {
      inner->set(symbol, named->second);
      given.named.erase(named);
    }
  }
  set_rest(macro, inner, given, taken);
  const std::size_t required = count - macro.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (is_set[i]) continue;
    const auto& [symbol, name] = macro.parameters[i];
    inner->set(symbol, i >= required ? evaluate(*macro.defaults[i - required], inner)
                                     : runtime_.undefined(formats::joined("parameter '", name, "' was not provided")));
  }
  const int line = line_;
  Value text = runtime_.string(captured(macro.body, inner).first);
  line_ = line;
  return text;
}

void Evaluator::set_rest(const Macro& macro, const ScopePtr& inner, Arguments& given, std::size_t taken) {
  const auto caller =
      std::find_if(given.named.begin(), given.named.end(), [](const auto& n) { return n.first == "caller"; });
  if (macro.uses_caller) {
    inner->set(program_.caller, caller == given.named.end() ? runtime_.undefined("no caller defined") : caller->second);
    if (caller != given.named.end()) given.named.erase(caller);
  }
  if (macro.uses_kwargs) {
    Dict::Entries entries;
    for (const auto& [name, value] : given.named) entries.emplace_back(runtime_.string(name, true), value);
    inner->set(program_.kwargs, runtime_.dict(entries));
  } else if (!given.named.empty()) {
    refuse("macro '", macro.name, "' takes no keyword argument ", formats::in_quotes(given.named[0].first));
  }
  if (macro.uses_varargs) {
    const auto begin = given.positional.begin() + static_cast<std::ptrdiff_t>(taken);
    inner->set(program_.varargs, runtime_.tuple({begin, given.positional.end()}));
  } else if (given.positional.size() > taken) {
    refuse("macro '", macro.name, "' takes not more than ", macro.parameters.size(), " arguments");
  }
}

}  // namespace bie::text::chat
