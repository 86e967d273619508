#include "report/number_text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace bie::report {
namespace {

struct Scale {
  double from, factor;
  const char* unit;
};
constexpr Scale byte_scales[] = {
    {1e12, 1e12, "TB"}, {1e9, 1e9, "GB"}, {1e6, 1e6, "MB"}, {1e3, 1e3, "kB"}, {0, 1, "bytes"}};
constexpr Scale second_scales[] = {{7200, 3600, "h"},  {120, 60, "min"},        {1, 1, "s"},
                                   {1e-3, 1e-3, "ms"}, {1e-6, 1e-6, "\u00b5s"}, {0, 1e-9, "ns"}};
constexpr char unbreakable_space[] = "\u00a0";

template <std::size_t n>
const Scale& scale_of(double value, const Scale (&scales)[n]) {
  std::size_t i = 0;
  while (std::abs(value) < scales[i].from) ++i;
  return scales[i];
}

/// Three digits, zeros at the end among them, so that the numbers of a column line up.
std::string three_digits(double value) {
  const double size = std::abs(value);
  return fixed(value, value == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/// `number` writes the value in the unit that suits it.
std::string unit_text(double value, Unit unit, std::string (*number)(double)) {
  Scale scale{0, 1, ""};
  if (unit == Unit::percent) scale = {0, 0.01, "%"};
  if (unit == Unit::bytes) scale = scale_of(value, byte_scales);
  if (unit == Unit::seconds) scale = value == 0 ? Scale{0, 1, "s"} : scale_of(value, second_scales);
  return number(value / scale.factor) + unbreakable_space + scale.unit;
}

std::string written(double value, std::chars_format format, int precision) {
  std::array<char, 400> buffer;  // the longest double in fixed notation has 309 digits
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision);
  return error == std::errc() ? std::string(buffer.data(), end) : no_value;
}

}  // namespace

bool drawable(double value) { return std::abs(value) < 1e300; }

std::string fixed(double value, int decimals) {
  const std::string text = written(value, std::chars_format::fixed, decimals);
  return text.find_first_not_of("-0.") == std::string::npos && text[0] == '-' ? text.substr(1) : text;
}

std::string significant(double value, int digits) {
  std::string text = written(value, std::chars_format::general, digits);
  const std::size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  // "1e-06" and "1e+20" become "1e-6" and "1e20".
  const bool negative = text[exponent + 1] == '-';
  const std::size_t first = text.find_first_not_of("+-0", exponent + 1);
  return text.substr(0, exponent + 1) + (negative ? "-" : "") + text.substr(first);
}

std::string grouped(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string coordinate(double value) {
  std::string text = fixed(value, 1);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

std::string with_unit(double value, Unit unit) {
  if (!drawable(value)) return no_value;
  if (unit == Unit::number) return significant(value, 4);
  if (unit == Unit::percent) return unit_text(value, unit, [](double percent) { return fixed(percent, 2); });
  return unit_text(value, unit, three_digits);
}

std::string round_with_unit(double value, Unit unit) {
  return unit_text(value, unit, [](double number) { return significant(number, 4); });
}

}  // namespace bie::report
