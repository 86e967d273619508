#include <algorithm>
#include <array>

#include "text/chat_template/filters.h"
#include "text/chat_template/parser.h"

namespace bie::text::chat {
namespace {

constexpr int deepest_expression = 200;
constexpr std::size_t most_arguments = 255;

template <std::size_t n>
bool is_one_of(const std::string& text, const std::array<std::string_view, n>& all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::data: return "template data";
    case TokenKind::block_begin: return "\"{%\"";
    case TokenKind::block_end: return "\"%}\"";
    case TokenKind::variable_begin: return "\"{{\"";
    case TokenKind::variable_end: return "\"}}\"";
    case TokenKind::end: return "the end of the template";
    default: return formats::in_quotes(token.text);
  }
}

}  // namespace

Token ExpressionParser::take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::skip_sign(std::string_view sign) {
  if (!is_sign(sign)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::fail_expected(std::string_view what) const {
  fail(formats::joined("expected ", what, ", got ", shown(current())));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) fail_expected(what);
  take();
}

void ExpressionParser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) fail_expected(formats::in_quotes(sign));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(formats::in_quotes(name));
}

std::string ExpressionParser::expect_any_name() {
  if (!is(TokenKind::name)) fail_expected("a name");
  return take().text;
}

void ExpressionParser::add(Expression& parent, ExpressionPtr part) const {
  if (part != nullptr) parent.depth = std::max(parent.depth, part->depth + 1);
  if (parent.depth > deepest_expression)
    fail(formats::joined("expected an expression of at most ", deepest_expression, " levels, got more"));
  parent.parts.push_back(std::move(part));
}

ExpressionPtr ExpressionParser::done(std::unique_ptr<Expression> expression) const {
  const auto measure = [&](const ExpressionPtr& part) {
    if (part != nullptr) expression->depth = std::max(expression->depth, part->depth + 1);
  };
  for (const auto& part : expression->arguments.positional) measure(part);
  for (const auto& [name, part] : expression->arguments.named) measure(part);
  measure(expression->arguments.rest);
  measure(expression->arguments.rest_named);
  if (expression->depth > deepest_expression)
    fail(formats::joined("expected an expression of at most ", deepest_expression, " levels, got more"));
  return expression;
}

bool ExpressionParser::is_tuple_end(std::string_view end) const {
  return is(TokenKind::variable_end) || is(TokenKind::block_end) || is_sign(")") || (!end.empty() && is_name(end));
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const Deeper deeper(*this);
  return with_condition ? condition() : either();
}

ExpressionPtr ExpressionParser::condition() {
  const Deeper deeper(*this);
  int line = current().line;
  const auto unknown = static_cast<std::ptrdiff_t>(unknown_.size());
  ExpressionPtr value = either();
  while (skip_name("if")) {
    auto result = node(ExpressionKind::condition, line);
    add(*result, either());
    add(*result, std::move(value));
    add(*result, skip_name("else") ? condition() : nullptr);
    value = std::move(result);
    line = current().line;
    unknown_.erase(unknown_.begin() + unknown, unknown_.end());
  }
  return value;
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr left = both();
  while (is_name("or")) {
    auto result = node(ExpressionKind::logic_or, take().line);
    add(*result, std::move(left));
    add(*result, both());
    left = std::move(result);
  }
  return left;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr left = negation();
  while (is_name("and")) {
    auto result = node(ExpressionKind::logic_and, take().line);
    add(*result, std::move(left));
    add(*result, negation());
    left = std::move(result);
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Deeper deeper(*this);
  auto result = node(ExpressionKind::logic_not, take().line);
  add(*result, negation());
  return result;
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::array<std::string_view, 6> signs = {"==", "!=", "<", "<=", ">", ">="};
  auto result = node(ExpressionKind::compare, current().line);
  ExpressionPtr first = sum();
  for (;;) {
    std::string sign;
    if (is(TokenKind::sign) && is_one_of(current().text, signs)) {
      sign = take().text;
    } else if (skip_name("in")) {
      sign = "in";
    } else if (is_name("not") && behind().kind == TokenKind::name && behind().text == "in") {
      take();
      take();
      sign = "not in";
    } else {
      break;
    }
    if (first != nullptr) add(*result, std::move(first));
    result->operators.push_back(std::move(sign));
    add(*result, sum());
  }
  if (first != nullptr) return first;
  return result;
}

ExpressionPtr ExpressionParser::binary(ExpressionPtr left, ExpressionPtr right, const Token& sign) const {
  auto result = node(ExpressionKind::binary, sign.line);
  result->text = sign.text;
  add(*result, std::move(left));
  add(*result, std::move(right));
  return result;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (is_sign("+") || is_sign("-")) {
    const Token sign = take();
    left = binary(std::move(left), concatenation(), sign);
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr first = product();
  if (!is_sign("~")) return first;
  auto result = node(ExpressionKind::concat, current().line);
  add(*result, std::move(first));
  while (skip_sign("~")) add(*result, product());
  return result;
}

ExpressionPtr ExpressionParser::product() {
  constexpr std::array<std::string_view, 4> signs = {"*", "/", "//", "%"};
  ExpressionPtr left = power();
  while (is(TokenKind::sign) && is_one_of(current().text, signs)) {
    const Token sign = take();
    left = binary(std::move(left), power(), sign);
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (is_sign("**")) {
    const Token sign = take();
    left = binary(std::move(left), unary(), sign);
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  ExpressionPtr value;
  if (is_sign("-") || is_sign("+")) {
    const Token sign = take();
    auto result = node(ExpressionKind::unary, sign.line);
    result->text = sign.text;
    add(*result, unary(false));
    value = std::move(result);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? behind_filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::constant(Value value, int line) const {
  auto result = node(ExpressionKind::constant, line);
  result->value = std::move(value);
  return result;
}

void ExpressionParser::mention(const std::string& name) {
  for (Mentions& of_macro : mentions_) {
    of_macro.caller |= name == "caller";
    of_macro.kwargs |= name == "kwargs";
    of_macro.varargs |= name == "varargs";
  }
}

ExpressionPtr ExpressionParser::primary(bool with_attribute_names) {
  const int line = current().line;
  if (is(TokenKind::string)) return strings();
  if (is(TokenKind::integer)) return constant(Value::of(take().whole, true), line);
  if (is(TokenKind::real)) return constant(Value::of(take().number, true), line);
  if (is_sign("[")) return list();
  if (is_sign("{")) return dict();
  if (skip_sign("(")) {
    ExpressionPtr value = tuple(true, {}, true);
    expect_sign(")");
    return value;
  }
  if (!is(TokenKind::name)) fail_expected("an expression");
  const std::string name = take().text;
  if (name == "true" || name == "True") return constant(Value::of(true, true), line);
  if (name == "false" || name == "False") return constant(Value::of(false, true), line);
  if (name == "none" || name == "None") return constant(Value::none(true), line);
  auto result = node(ExpressionKind::name, line);
  result->symbol = symbols_.of(name);
  result->text = name;
  if (with_attribute_names && skip_sign(".")) {
    result->kind = ExpressionKind::attribute_name;
    result->text = expect_any_name();
  }
  mention(name);
  return result;
}

ExpressionPtr ExpressionParser::strings() {
  const int line = current().line;
  std::string text;
  while (is(TokenKind::string)) text += take().text;
  return constant(Value::object(Kind::string, std::make_shared<String>(MarkedText(std::move(text), true))), line);
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, std::string_view end, bool in_parentheses) {
  const Deeper deeper(*this);
  auto result = node(ExpressionKind::tuple, current().line);
  bool is_tuple = false;
  for (;;) {
    if (!result->parts.empty()) expect_sign(",");
    if (is_tuple_end(end)) break;
    add(*result, expression(with_condition));
    if (!is_sign(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return result;
  if (!result->parts.empty()) return std::move(result->parts[0]);
  if (!in_parentheses) fail_expected("an expression");
  return result;
}

ExpressionPtr ExpressionParser::list() {
  auto result = node(ExpressionKind::list, take().line);
  while (!is_sign("]")) {
    if (!result->parts.empty()) expect_sign(",");
    if (is_sign("]")) break;
    add(*result, expression());
  }
  take();
  return result;
}

ExpressionPtr ExpressionParser::dict() {
  auto result = node(ExpressionKind::dict, take().line);
  while (!is_sign("}")) {
    if (!result->parts.empty()) expect_sign(",");
    if (is_sign("}")) break;
    add(*result, expression());
    expect_sign(":");
    add(*result, expression());
  }
  take();
  return result;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  for (;;) {
    if (is_sign(".") || is_sign("["))
      value = subscript(std::move(value));
    else if (is_sign("("))
      value = call(std::move(value));
    else
      return value;
  }
}

ExpressionPtr ExpressionParser::behind_filters(ExpressionPtr value) {
  for (;;) {
    if (is_sign("|"))
      value = filters(std::move(value));
    else if (is_name("is"))
      value = test(std::move(value));
    else if (is_sign("("))
      value = call(std::move(value));
    else
      return value;
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const Token sign = take();
  if (sign.text == ".") {
    const Token name = take();
    if (name.kind != TokenKind::name && name.kind != TokenKind::integer)
      refuse_at(name.line, "expected a name or a number behind \".\"");
    auto result = node(name.kind == TokenKind::name ? ExpressionKind::attribute : ExpressionKind::item, sign.line);
    add(*result, std::move(value));
    result->text = name.text;
    if (name.kind == TokenKind::integer) add(*result, constant(Value::of(name.whole, true), name.line));
    return result;
  }
  std::unique_ptr<Expression> item = subscribed(std::move(value));
  if (!is_sign(",")) {
    expect_sign("]");
    return item;
  }
  if (item->kind == ExpressionKind::slice) fail("expected one slice, got several keys");
  auto keys = node(ExpressionKind::tuple, sign.line);
  add(*keys, std::move(item->parts[1]));
  while (skip_sign(",")) add(*keys, expression());
  expect_sign("]");
  item->parts.pop_back();
  add(*item, std::move(keys));
  return item;
}

ExpressionPtr ExpressionParser::slice_part() {
  return is_sign(":") || is_sign("]") || is_sign(",") ? nullptr : expression();
}

std::unique_ptr<Expression> ExpressionParser::subscribed(ExpressionPtr value) {
  auto result = node(ExpressionKind::item, current().line);
  add(*result, std::move(value));
  ExpressionPtr first = is_sign(":") ? nullptr : expression();
  const bool is_slice = skip_sign(":");
  add(*result, std::move(first));
  if (!is_slice) return result;
  result->kind = ExpressionKind::slice;
  add(*result, slice_part());
  add(*result, skip_sign(":") ? slice_part() : nullptr);
  return result;
}

void ExpressionParser::call_arguments(CallArguments& arguments) {
  const int line = current().line;
  expect_sign("(");
  const auto ensure = [&](bool holds) {
    if (!holds) refuse_at(line, "expected positional arguments, then named ones, then * and **");
  };
  for (bool is_first = true; !is_sign(")"); is_first = false) {
    if (arguments.named.size() > most_arguments)
      fail(formats::joined("expected at most ", most_arguments, " named arguments, got more"));
    if (!is_first) {
      expect_sign(",");
      if (is_sign(")")) break;
    }
    if (skip_sign("*")) {
      ensure(arguments.rest == nullptr && arguments.rest_named == nullptr);
      arguments.rest = expression();
    } else if (skip_sign("**")) {
      ensure(arguments.rest_named == nullptr);
      arguments.rest_named = expression();
    } else if (is(TokenKind::name) && behind().kind == TokenKind::sign && behind().text == "=") {
      ensure(arguments.rest_named == nullptr);
      const std::string name = take().text;
      take();
      for (const auto& [other, part] : arguments.named)
        if (other == name) fail(formats::joined("expected an argument once, got ", formats::in_quotes(name), " twice"));
      arguments.named.emplace_back(name, expression());
    } else {
      ensure(arguments.rest == nullptr && arguments.rest_named == nullptr && arguments.named.empty());
      arguments.positional.push_back(expression());
    }
  }
  take();
}

ExpressionPtr ExpressionParser::call(ExpressionPtr value) {
  auto result = node(ExpressionKind::call, current().line);
  add(*result, std::move(value));
  call_arguments(result->arguments);
  return done(std::move(result));
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr value, bool starts_inside) {
  while (starts_inside || is_sign("|")) {
    if (!starts_inside) take();
    starts_inside = false;
    auto result = node(ExpressionKind::filter, current().line);
    add(*result, std::move(value));
    result->text = expect_any_name();
    while (skip_sign(".")) result->text += formats::joined(".", expect_any_name());
    if (!is_optional_ && !is_filter(result->text))
      unknown_.push_back({result->line, formats::joined("no filter named ", formats::in_quotes(result->text))});
    if (is_sign("(")) call_arguments(result->arguments);
    value = done(std::move(result));
  }
  return value;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  auto result = node(ExpressionKind::test, take().line);
  const bool is_negated = skip_name("not");
  add(*result, std::move(value));
  result->text = expect_any_name();
  while (skip_sign(".")) result->text += formats::joined(".", expect_any_name());
  if (!is_optional_ && !is_test(result->text))
    unknown_.push_back({result->line, formats::joined("no test named ", formats::in_quotes(result->text))});
  const bool has_operand = is(TokenKind::name) || is(TokenKind::string) || is(TokenKind::integer) ||
                           is(TokenKind::real) || is_sign("[") || is_sign("{");
  if (is_sign("(")) {
    call_arguments(result->arguments);
  } else if (has_operand && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("expected one test, got a chain of them");
    const Deeper deeper(*this);
    result->arguments.positional.push_back(postfix(primary()));
  }
  ExpressionPtr tested = done(std::move(result));
  if (!is_negated) return tested;
  auto negated = node(ExpressionKind::logic_not, tested->line);
  add(*negated, std::move(tested));
  return negated;
}

}  // namespace bie::text::chat
