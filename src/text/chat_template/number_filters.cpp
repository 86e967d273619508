// Filters of numbers.
#include <charconv>
#include <cmath>
#include <optional>

#include "text/chat_template/filters.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/parameters.h"
#include "text/chat_template/text_operations.h"

namespace bie::text::chat {
namespace {

using Args = const Arguments&;

/// A number's text without white space around it and single underscores in it; none where these stand elsewhere.
std::optional<std::string> number_text(Runtime& runtime, const MarkedText& text) {
  runtime.meter.step(text.size() / 4);
  const std::string bytes = stripped(runtime, text, std::nullopt, Side::both).bytes();
  std::string result;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '_') {
      result += bytes[i];
      continue;
    }
    const auto is_part = [&](std::size_t at) {
      return at < bytes.size() &&
             (is_letter(static_cast<unsigned char>(bytes[at])) || is_decimal(static_cast<unsigned char>(bytes[at])));
    };
    if (i == 0 || !is_part(i - 1) || !is_part(i + 1)) return std::nullopt;
  }
  return result;
}

std::optional<double> real_of(Runtime& runtime, const MarkedText& text) {
  const auto number = number_text(runtime, text);
  if (!number || number->empty()) return std::nullopt;
  const char* begin = number->data();
  const char* const end = begin + number->size();
  if (*begin == '+') ++begin;
  if (begin != end && *begin == '-' && begin != number->data()) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(begin, end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (number->find('(') != std::string::npos) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    const std::size_t e = number->find_first_of("eE");
    const bool is_tiny = e != std::string::npos && e + 1 < number->size() && (*number)[e + 1] == '-';
    value = is_tiny ? 0 : HUGE_VAL;
    if (number->find('-') == 0) value = -value;
  }
  return value;
}

std::optional<std::int64_t> whole_of(Runtime& runtime, const MarkedText& text, int base) {
  auto number = number_text(runtime, text);
  if (!number || number->empty()) return std::nullopt;
  const bool is_negative = (*number)[0] == '-';
  std::string_view digits = *number;
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  if (digits.size() > 1 && digits[0] == '0') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    const int named = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (named != 0 && (base == 0 || base == named)) {
      digits.remove_prefix(2);
      base = named;
    }
  }
  if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string_view::npos)
      return std::nullopt;
    base = 10;
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  const std::string all = formats::joined(is_negative ? "-" : "", digits);
  std::int64_t value = 0;
  const auto result = std::from_chars(all.data(), all.data() + all.size(), value, base);
  if (result.ptr != all.data() + all.size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) refuse("expected integers of 64 bits, got a larger one");
  return result.ec == std::errc() ? std::optional<std::int64_t>(value) : std::nullopt;
}

std::optional<Value> truncated(double value, bool mark) {
  if (!std::isfinite(value)) return std::nullopt;
  if (!(std::fabs(value) < 9.2e18)) refuse("expected integers of 64 bits, got a larger one");
  return Value::of(static_cast<std::int64_t>(value), mark);
}

Value to_int(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "int", arguments, {"default", "base"});
  expect_defined(value);
  const Value otherwise = p.has(0) ? p[0] : Value::of(std::int64_t{0}, true);
  const std::int64_t base = !p.has(1) ? 10 : p[1].is_whole() ? p[1].whole() : 1;  // 1 reads nothing
  if (value.is_whole()) return Value::of(value.whole(), value.mark());
  std::optional<Value> result;
  if (value.is(Kind::real)) {
    if (std::isinf(value.real())) refuse("cannot convert float infinity to integer");
    result = truncated(value.real(), value.mark());
  }
  if (value.is(Kind::string)) {
    if (base == 0 || (base >= 2 && base <= 36))
      if (const auto whole = whole_of(runtime, value.text(), static_cast<int>(base))) return Value::of(*whole);
    if (const auto real = real_of(runtime, value.text())) result = truncated(*real, false);
  }
  return result.value_or(otherwise);
}

Value to_float(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "float", arguments, {"default"});
  expect_defined(value);
  if (value.is_number()) return Value::of(value.real(), value.mark());
  if (value.is(Kind::string))
    if (const auto real = real_of(runtime, value.text())) return Value::of(*real);
  return p.has(0) ? p[0] : Value::of(0.0, true);
}

Value absolute(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "abs", arguments, {});
  expect_defined(value);
  if (!value.is_number()) refuse("bad operand type for abs(): '", type_name(value), "'");
  if (value.is(Kind::real)) return Value::of(std::fabs(value.real()), value.mark());
  return value.whole() < 0 ? unary("-", value) : unary("+", value);
}

/// The nearest number with that many decimals, half to even by the number's exact value.
double rounded(double value, int decimals) {
  if (!std::isfinite(value) || decimals > 340) return value;
  char buffer[800];
  if (decimals >= 0) {
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed, decimals).ptr;
    double result = 0;
    std::from_chars(buffer, end, result);
    return result;
  }
  const double unit = std::pow(10.0, -decimals);
  return std::isinf(unit) ? std::copysign(0.0, value) : std::nearbyint(value / unit) * unit;
}

Value round(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "round", arguments, {"precision", "method"});
  const std::string method = p.has(1) ? p.text(1).bytes() : "common";
  const std::int64_t precision = p.whole(0, 0);
  if (method != "common" && method != "ceil" && method != "floor") refuse("method must be common, ceil or floor");
  expect_defined(value);
  if (!value.is_number()) refuse("type ", type_name(value), " doesn't define __round__ method");
  if (method == "common") {
    if (value.is(Kind::real))
      return Value::of(rounded(value.real(), static_cast<int>(std::clamp<std::int64_t>(precision, -400, 400))),
                       value.mark());
    if (precision >= 0) return Value::of(value.whole(), value.mark());
    if (precision < -18) return Value::of(std::int64_t{0}, value.mark());
    std::int64_t unit = 1;
    for (std::int64_t i = 0; i < -precision; ++i) unit *= 10;
    const std::int64_t rest = ((value.whole() % unit) + unit) % unit;
    std::int64_t result = 0;
    bool is_large = __builtin_sub_overflow(value.whole(), rest, &result);
    const bool is_up = rest * 2 > unit || (rest * 2 == unit && (result / unit) % 2 != 0);
    is_large = is_large || (is_up && __builtin_add_overflow(result, unit, &result));
    if (is_large) refuse("expected integers of 64 bits, got a larger one");
    return Value::of(result, value.mark());
  }
  if (precision > 18 || precision < -300) refuse("round expects a precision of at most 18, got ", precision);
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.real() * unit;
  if (!std::isfinite(scaled)) refuse("cannot convert such a float to integer");
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit, value.mark());
}

Value file_size(Runtime& runtime, const Value& value, Args arguments) {
  const Parameters p(runtime, "filesizeformat", arguments, {"binary"});
  std::optional<double> given;
  if (value.is_number()) given = value.real();
  if (value.is(Kind::string)) given = real_of(runtime, value.text());
  if (!given || !std::isfinite(*given)) refuse("filesizeformat expects a number, got ", type_name(value));
  const double base = p.truth(0) ? 1024 : 1000;
  if (*given == 1) return runtime.string("1 Byte");
  if (*given < base) {
    if (*given < -9.2e18) refuse("expected integers of 64 bits, got a larger one");
    return runtime.string(formats::joined(static_cast<std::int64_t>(*given), " Bytes"));
  }
  constexpr std::string_view prefixes = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  while (i + 1 < prefixes.size() && *given >= unit * base) {
    unit *= base;
    ++i;
  }
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), *given / unit, std::chars_format::fixed, 1).ptr;
  std::string prefix(1, p.truth(0) && i == 0 ? 'K' : prefixes[i]);
  if (p.truth(0)) prefix += 'i';
  return runtime.string(
      formats::joined(std::string_view(buffer, static_cast<std::size_t>(end - buffer)), " ", prefix, "B"));
}

constexpr Filter filters[] = {
    {"int", to_int}, {"float", to_float}, {"abs", absolute}, {"round", round}, {"filesizeformat", file_size},
};

}  // namespace

const Filter* number_filter(std::string_view name) { return found_filter(filters, name); }

}  // namespace bie::text::chat
