#include "text/chat_template/format_spec.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "text/chat_template/characters.h"
#include "text/chat_template/python.h"

namespace bie::text::chat {
namespace {

constexpr std::int64_t longest = 1000;  // digits of a number

bool is_one_of(char c, const char* all) { return c != '\0' && std::strchr(all, c) != nullptr; }

std::int64_t read_number(std::string_view& text, std::int64_t otherwise) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end == text.data() || text[0] == '-') return otherwise;
  if (error != std::errc()) refuse("expected a width of 64 bits, got a larger one");
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::string whole_digits(std::int64_t value, const FormatSpec& spec) {
  const std::uint64_t size = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : is_one_of(spec.type, "xX") ? 16 : 10;
  char buffer[80];
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof(buffer), size, base).ptr);
  if (spec.type == 'X')
    for (char& c : digits) c = c >= 'a' ? static_cast<char>(c - 32) : c;
  if (spec.is_alternate && base != 10) digits = formats::joined('0', spec.type, digits);
  return digits;
}

std::string real_digits(double value, const FormatSpec& spec) {
  const double size = std::fabs(value);
  const bool is_upper = is_one_of(spec.type, "EFG");
  if (!std::isfinite(size)) {
    const std::string name = std::isnan(size) ? "nan" : "inf";
    return is_upper ? (std::isnan(size) ? "NAN" : "INF") : name;
  }
  if (spec.type == '\0' && spec.precision < 0) return shown_real(size);
  if (spec.precision > longest) refuse("expected at most ", longest, " digits, got more");
  const char kind = spec.type == '\0' ? 'g' : static_cast<char>(spec.type | 0x20);
  const auto form = kind == 'e'   ? std::chars_format::scientific
                    : kind == 'g' ? std::chars_format::general
                                  : std::chars_format::fixed;
  char buffer[longest + 400];
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const double scaled = spec.type == '%' ? size * 100 : size;
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof(buffer), scaled, form, precision).ptr);
  if (spec.type == '%') digits += '%';
  if (is_upper)
    for (char& c : digits) c = c == 'e' ? 'E' : c;
  if (spec.type == '\0' && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

std::string with_separators(const std::string& digits, char separator) {
  std::size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < end && (end - i) % 3 == 0) result += separator;
    result += digits[i];
  }
  return result;
}

}  // namespace

FormatSpec format_spec(std::string_view text) {
  FormatSpec spec;
  spec.is_empty = text.empty();
  const std::size_t first = text.empty() ? 0 : next_character(text, 0);
  if (first < text.size() && is_one_of(text[first], "<>^=")) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && is_one_of(text[0], "<>^=")) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto take = [&](const char* all) {
    const char c = !text.empty() && is_one_of(text[0], all) ? text[0] : '\0';
    if (c != '\0') text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.is_alternate = take("#") != '\0';
  if (take("0") != '\0') {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = read_number(text, 0);
  spec.separator = take(",_");
  if (take(".") != '\0') {
    spec.precision = read_number(text, -1);
    if (spec.precision < 0) refuse("format specifier missing precision");
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) refuse("invalid format specifier ", formats::in_quotes(text));
  return spec;
}

std::string digits_of(const Value& value, const FormatSpec& spec) {
  const bool is_real = value.is(Kind::real) || is_one_of(spec.type, "eEfFgG%");
  const std::string digits = is_real ? real_digits(value.real(), spec) : whole_digits(value.whole(), spec);
  return spec.separator == '\0' ? digits : with_separators(digits, spec.separator);
}

MarkedText with_width(Runtime& runtime, MarkedText text, const FormatSpec& spec, std::size_t sign_bytes) {
  runtime.meter.step(text.size() / 16);
  const auto count = static_cast<std::int64_t>(count_characters(text.bytes()));
  if (spec.width <= count) return text;
  const auto missing = static_cast<std::size_t>(spec.width - count);
  runtime.meter.check_text(missing);
  runtime.meter.check_text(missing * spec.fill.size());
  const std::size_t left = spec.align == '<' ? 0 : spec.align == '^' ? missing / 2 : missing;
  MarkedText result;
  const std::size_t head = spec.align == '=' ? sign_bytes : 0;
  result.append(text, 0, head);
  for (std::size_t i = 0; i < left; ++i) result.append(spec.fill, false);
  result.append(text, head, text.size());
  for (std::size_t i = left; i < missing; ++i) result.append(spec.fill, false);
  return result;
}

MarkedText formatted(Runtime& runtime, const Value& value, const FormatSpec& given) {
  FormatSpec spec = given;
  const bool is_number = value.is_number() && !(value.is(Kind::boolean) && spec.is_empty);
  if (!is_number || spec.type == 's') {
    if (value.is_number() && spec.type == 's') refuse("unknown format code 's' for a number");
    if (!value.is(Kind::string) && !spec.is_empty) refuse("unsupported format of ", type_name(value));
    if (spec.type != 's' && spec.type != '\0') refuse("unknown format code for a string");
    if (spec.align == '=') refuse("'=' alignment not allowed in string format specifier");
    MarkedText text = shown(runtime, value);
    if (spec.precision >= 0) text = text.part(0, offset_of(text.bytes(), static_cast<std::size_t>(spec.precision)));
    if (spec.align == '\0') spec.align = '<';
    return with_width(runtime, std::move(text), spec);
  }
  if (spec.type == 'c') refuse("expected a format of a number, got 'c'");
  if (value.is(Kind::real) && is_one_of(spec.type, "bdoxX")) refuse("unknown format code for a float");
  if (value.is_whole() && spec.precision >= 0 && !is_one_of(spec.type, "eEfFgG%"))
    refuse("precision not allowed in integer format specifier");
  if (spec.type == 'n') spec.type = value.is_whole() ? 'd' : 'g';
  const bool is_negative = value.is(Kind::real) ? std::signbit(value.real()) : value.whole() < 0;
  const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  MarkedText text(sign, value.mark());
  text.append(digits_of(value, spec), value.mark());
  if (spec.align == '\0') spec.align = '>';
  return with_width(runtime, std::move(text), spec, sign.size());
}

}  // namespace bie::text::chat
