#include "report/axis.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bie::report {
namespace {

constexpr double rounding = 1e-9;  // of a step: values that are ticks but for the last bit are ticks

double round_step(double range, int wanted) {
  const double least = range / wanted;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1., 2., 5.})
    if (factor * power >= least * (1 - rounding)) return factor * power;
  return 10 * power;
}

std::string tick_text(double value, double step, Unit unit) {
  if (value == 0) return "0";
  if (unit == Unit::bytes || unit == Unit::seconds) return round_with_unit(value, unit);
  const double shown_step = unit == Unit::percent ? 100 * step : step;
  const double shown = unit == Unit::percent ? 100 * value : value;
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(shown_step) + rounding)));
  const bool plain = decimals <= 4 && std::abs(shown) < 1e6;
  return (plain ? fixed(shown, decimals) : significant(shown, 4)) + (unit == Unit::percent ? "\u00a0%" : "");
}

std::vector<Tick> multiples(double first, double last, double step, Unit unit) {
  std::vector<Tick> ticks;
  for (double i = first; i <= last; ++i) ticks.push_back({i * step, tick_text(i * step, step, unit)});
  return ticks;
}

}  // namespace

double Axis::place(double value) const {
  if (logarithmic) return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  return (value - low) / (high - low);
}

Axis linear_axis(double low, double high, Unit unit, int wanted) {
  if (!drawable(low) || !drawable(high)) low = 0, high = 1;
  if (low > high) std::swap(low, high);
  const double largest = std::max(std::abs(low), std::abs(high));
  const bool share = unit == Unit::percent && low >= 0 && high <= 1;
  if (high - low <= std::max(1e-9 * largest, 1e-290)) {
    const double room = largest < 1e-290 ? 1 : share ? 0.05 : 0.1 * largest;
    low -= room;
    high += room;
  }
  const double step = round_step(high - low, wanted);
  double first = std::floor(low / step + rounding), last = std::ceil(high / step - rounding);
  if (share) first = std::max(first, 0.), last = std::min(last, std::floor(1 / step + rounding));
  return {first * step, last * step, false, multiples(first, last, step, unit)};
}

Axis log_axis(double low, double high, Unit unit, int wanted) {
  // The marks are numbered: three a decade.
  const auto mark = [](double i) {
    constexpr double factors[] = {1, 2, 5};
    const double decade = std::floor(i / 3);
    return factors[static_cast<int>(i - 3 * decade)] * std::pow(10, decade);
  };
  double first = 3 * std::floor(std::log10(low)), last = 3 * std::ceil(std::log10(high));
  while (mark(first + 1) <= low * (1 + rounding)) ++first;
  while (mark(last - 1) >= high * (1 - rounding)) --last;
  if (first == last) --first, ++last;
  Axis axis{mark(first), mark(last), true, {}};
  const double decades = std::floor(last / 3) - std::ceil(first / 3);
  const double stride = last - first < wanted ? 1 : 3 * std::max(1., std::ceil(decades / wanted));
  for (double i = first; i <= last; ++i)
    if (std::fmod(i, stride) == 0) axis.ticks.push_back({mark(i), tick_text(mark(i), mark(i), unit)});
  return axis;
}

Axis count_axis(double low, double high, int wanted) {
  const double step = high > low ? std::max(1., round_step(high - low, wanted)) : 1;
  const double first = std::ceil(low / step - rounding), last = std::floor(high / step + rounding);
  Axis axis{low, high, false, multiples(first, last, step, Unit::number)};
  if (low == high) axis.low -= 0.5, axis.high += 0.5;
  return axis;
}

}  // namespace bie::report
