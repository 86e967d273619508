#include "bie/kernels/step_search.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace bie::kernels {
namespace {

constexpr float least_step = 1e-8f;
// More values do not change the result.
constexpr std::int64_t most_values = 1 << 18;

/// Evenly spaced values of a row.
std::vector<float> thinned(const StepValues& v, std::int64_t row) {
  const std::int64_t wanted = std::max<std::int64_t>(most_values / v.rows, 1);
  const std::int64_t stride = v.count <= wanted ? 1 : (v.count + wanted - 1) / wanted;
  std::vector<float> values;
  for (std::int64_t i = 0; i < v.count; i += stride) values.push_back(v.data[row * v.count + i]);
  return values;
}

/// The step whose largest code is the magnitude that `percentile` per cent do not exceed.
float step_at(const std::vector<float>& values, double percentile, int bits) {
  if (values.empty()) return least_step;
  std::vector<float> magnitudes(values.size());
  std::transform(values.begin(), values.end(), magnitudes.begin(), [](float v) { return v == v ? std::fabs(v) : 0; });
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = magnitudes.begin() + std::llround(percentile / 100 * last);
  std::nth_element(magnitudes.begin(), at, magnitudes.end());
  return std::max(*at / (bits == 8 ? 127.0f : 7.0f), least_step);
}

/// Sum of squared errors of a step.
double square_error(const std::vector<float>& values, float step, int bits) {
  const float low = bits == 8 ? -128 : -8, high = bits == 8 ? 127 : 7;
  constexpr float integers = 0x1.8p23f;  // added to a small number it leaves the nearest integer
  constexpr std::size_t block = 256;
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t count = std::min(block, values.size() - begin);
    float squares[block];
    for (std::size_t i = 0; i < count; ++i) {
      const float v = values[begin + i], q = std::min(std::max(v / step, low), high);
      const float change = (q + integers - integers) * step - v;
      squares[i] = change * change;
    }
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(squares[i]);
  }
  return sum;
}

}  // namespace

void least_square_steps(const StepValues& v, float* steps) {
  constexpr int candidates = 84;
  for (std::int64_t row = 0; row < v.rows; ++row) {
    const std::vector<float> values = thinned(v, row);
    const float widest = step_at(values, 100, v.bits);
    steps[row] = widest;
    double least = square_error(values, widest, v.bits);
    for (int i = 1; i < candidates; ++i) {
      const float step = std::max(widest * static_cast<float>(std::pow(0.96, i)), least_step);
      const double error = square_error(values, step, v.bits);
      if (error < least) least = error, steps[row] = step;
    }
  }
}

void percentile_steps(const StepValues& v, double percentile, float* steps) {
  for (std::int64_t row = 0; row < v.rows; ++row) steps[row] = step_at(thinned(v, row), percentile, v.bits);
}

}  // namespace bie::kernels
