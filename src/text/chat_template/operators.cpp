#include <cmath>
#include <limits>

#include "text/chat_template/escape.h"
#include "text/chat_template/format.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/python.h"

namespace bie::text::chat {
namespace {

[[noreturn]] void fail_types(std::string_view sign, const Value& a, const Value& b) {
  refuse("unsupported operand types of ", sign, ": '", type_name(a), "' and '", type_name(b), "'");
}

[[noreturn]] void fail_size() { refuse("expected integers of 64 bits, got a larger one"); }

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) refuse("division by zero");
  if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) fail_size();
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

std::int64_t floor_rest(std::int64_t a, std::int64_t b) {
  if (b == 0) refuse("division by zero");
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double real_rest(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (b < 0) != (rest < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double real_floor(double a, double b) {
  const double rest = real_rest(a, b);
  double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value whole_power(std::int64_t base, std::int64_t exponent, bool mark) {
  if (exponent < 0) {
    if (base == 0) refuse("0.0 cannot be raised to a negative power");
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)), mark);
  }
  std::int64_t result = 1;
  for (std::int64_t left = exponent; left > 0; left >>= 1) {
    if ((left & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_size();
    if (left > 1 && __builtin_mul_overflow(base, base, &base)) fail_size();
  }
  return Value::of(result, mark);
}

Value of_wholes(std::string_view sign, std::int64_t a, std::int64_t b, bool mark) {
  std::int64_t result = 0;
  if (sign == "+" && __builtin_add_overflow(a, b, &result)) fail_size();
  if (sign == "-" && __builtin_sub_overflow(a, b, &result)) fail_size();
  if (sign == "*" && __builtin_mul_overflow(a, b, &result)) fail_size();
  if (sign == "//") result = floor_quotient(a, b);
  if (sign == "%") result = floor_rest(a, b);
  if (sign == "**") return whole_power(a, b, mark);
  if (sign != "/") return Value::of(result, mark);
  if (b == 0) refuse("division by zero");
  return Value::of(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)), mark);
}

Value of_reals(std::string_view sign, double a, double b, bool mark) {
  if (b == 0 && (sign == "/" || sign == "//" || sign == "%")) refuse("float division by zero");
  double result = 0;
  if (sign == "+") result = a + b;
  if (sign == "-") result = a - b;
  if (sign == "*") result = a * b;
  if (sign == "/") result = a / b;
  if (sign == "//") result = real_floor(a, b);
  if (sign == "%") result = real_rest(a, b);
  if (sign == "**") {
    if (a == 0 && b < 0) refuse("0.0 cannot be raised to a negative power");
    if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
      refuse("expected a real power, got a complex one");
    result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) refuse("expected a power that is finite");
  }
  return Value::of(result, mark);
}

bool is_list(const Value& value) { return value.is(Kind::sequence) && value.sequence().flavour <= Flavour::tuple; }

/// The largest number there is where the product is no number.
std::size_t product(std::size_t a, std::size_t b) {
  std::size_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
}

Value repeated(Runtime& runtime, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (value.is(Kind::string)) {
    const MarkedText& text = value.text();
    if (text.empty() || times == 0) return runtime.string("");
    runtime.meter.check_text(product(times, text.size()));
    MarkedText result;
    for (std::size_t i = 0; i < times; ++i) result.append(text);
    const Value all = runtime.string(std::move(result));
    return value.is_markup() ? all.as_markup() : all;
  }
  const auto& values = value.sequence().values;
  std::vector<Value> result;
  if (values.empty()) return runtime.sequence(value.sequence().flavour, {});
  runtime.meter.step(product(times, values.size()));
  for (std::size_t i = 0; i < times; ++i) result.insert(result.end(), values.begin(), values.end());
  return runtime.sequence(value.sequence().flavour, std::move(result));
}

Value added(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is(Kind::string) && b.is(Kind::string)) {
    const bool is_markup = a.is_markup() || b.is_markup();
    runtime.meter.check_text(a.text().size() + b.text().size());
    MarkedText text = is_markup && !a.is_markup() ? html_escaped(runtime, a.text()) : a.text();
    text.append(is_markup && !b.is_markup() ? html_escaped(runtime, b.text()) : b.text());
    const Value result = runtime.string(std::move(text));
    return is_markup ? result.as_markup() : result;
  }
  if (!is_list(a) || !is_list(b) || a.sequence().flavour != b.sequence().flavour) fail_types("+", a, b);
  runtime.meter.step(a.sequence().values.size());
  std::vector<Value> values = a.sequence().values;
  values.insert(values.end(), b.sequence().values.begin(), b.sequence().values.end());
  return runtime.sequence(a.sequence().flavour, std::move(values));
}

}  // namespace

void expect_defined(const Value& value) {
  if (value.is(Kind::undefined)) refuse(value.why());
}

Value binary(Runtime& runtime, std::string_view sign, const Value& a, const Value& b) {
  if (sign == "%" && a.is(Kind::string)) return percent_formatted(runtime, a, b);
  expect_defined(a);
  expect_defined(b);
  const bool mark = a.mark() && b.mark();
  if (a.is_whole() && b.is_whole()) return of_wholes(sign, a.whole(), b.whole(), mark);
  if (a.is_number() && b.is_number()) return of_reals(sign, a.real(), b.real(), mark);
  if (sign == "+") return added(runtime, a, b);
  if (sign == "*" && b.is_whole() && (a.is(Kind::string) || is_list(a))) return repeated(runtime, a, b.whole());
  if (sign == "*" && a.is_whole() && (b.is(Kind::string) || is_list(b))) return repeated(runtime, b, a.whole());
  fail_types(sign, a, b);
}

Value unary(std::string_view sign, const Value& a) {
  expect_defined(a);
  if (!a.is_number()) refuse("bad operand type of unary ", sign, ": '", type_name(a), "'");
  if (a.is(Kind::real)) return Value::of(sign == "-" ? -a.real() : a.real(), a.mark());
  if (sign == "-" && a.whole() == std::numeric_limits<std::int64_t>::min()) fail_size();
  return Value::of(sign == "-" ? -a.whole() : a.whole(), a.mark());
}

bool compare(Runtime& runtime, std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(runtime, a, b);
  if (sign == "!=") return !equal(runtime, a, b);
  if (sign == "in") return contains(runtime, b, a);
  if (sign == "not in") return !contains(runtime, b, a);
  const std::partial_ordering order = chat::order(runtime, a, b, sign);
  if (sign == "<") return std::is_lt(order);
  if (sign == "<=") return std::is_lteq(order);
  return sign == ">" ? std::is_gt(order) : std::is_gteq(order);
}

Value concat(Runtime& runtime, const std::vector<Value>& values) {
  MarkedText text;
  for (const Value& value : values) {
    const MarkedText part = shown(runtime, value);
    runtime.meter.check_text(text.size() + part.size());
    text.append(part);
  }
  return runtime.string(std::move(text));
}

}  // namespace bie::text::chat
