#include "bie/kernels/functions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace bie::kernels {
namespace {

constexpr std::int64_t elements_a_task = 4096;

template <class F>
void each(const float* x, std::int64_t count, float* y, const Parallel& parallel, const F& function) {
  parallel_for(parallel, count, elements_a_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<float>(function(static_cast<double>(x[i])));
  });
}

double between_0_and_1(double v) { return v < 0 ? 0 : v > 1 ? 1 : v; }

double gelu_tanh(double v) {
  constexpr double root = 0.79788456080286535588;  // sqrt(2 / pi)
  return v * (1 + std::tanh(root * (v + 0.044715 * v * v * v))) / 2;
}

}  // namespace

void apply_function(Function function, float a, float b, const float* x, std::int64_t count, float* y,
                    const Parallel& parallel) {
  const auto slope = static_cast<double>(a), offset = static_cast<double>(b);
  constexpr double root_half = 0.70710678118654752440;
  switch (function) {
    case Function::hard_sigmoid:
      return each(x, count, y, parallel, [=](double v) { return between_0_and_1(slope * v + offset); });
    case Function::hard_swish:
      return each(x, count, y, parallel, [](double v) { return v * between_0_and_1(v / 6 + 0.5); });
    case Function::tanh: return each(x, count, y, parallel, [](double v) { return std::tanh(v); });
    case Function::elu: return each(x, count, y, parallel, [=](double v) { return v > 0 ? v : slope * std::expm1(v); });
    case Function::gelu: return each(x, count, y, parallel, [](double v) { return v * std::erfc(-v * root_half) / 2; });
    case Function::gelu_tanh: return each(x, count, y, parallel, gelu_tanh);
    case Function::softplus:
      return each(x, count, y, parallel,
                  [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v))); });
    case Function::erf: return each(x, count, y, parallel, [](double v) { return std::erf(v); });
    case Function::power: return each(x, count, y, parallel, [=](double v) { return std::pow(v, slope); });
  }
}

void layer_norm(const float* x, std::int64_t rows, std::int64_t count, float eps, const float* scale,
                const float* shift, float* y, const Parallel& parallel) {
  parallel_for(parallel, rows, 1 + elements_a_task / (count + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const from = x + row * count;
      double sum = 0, squares = 0;
      for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(from[i]);
      const double mean = sum / static_cast<double>(count);
      for (std::int64_t i = 0; i < count; ++i) {
        const double v = static_cast<double>(from[i]) - mean;
        squares += v * v;
      }
      const double factor = 1 / std::sqrt(squares / static_cast<double>(count) + static_cast<double>(eps));
      for (std::int64_t i = 0; i < count; ++i) {
        const double v = (static_cast<double>(from[i]) - mean) * factor;
        const double scaled = scale == nullptr ? v : v * static_cast<double>(scale[i]);
        y[row * count + i] = static_cast<float>(shift == nullptr ? scaled : scaled + static_cast<double>(shift[i]));
      }
    }
  });
}

void crop_planes(const CropShape& s, const float* x, float* y, const Parallel& parallel) {
  const std::int64_t planes = s.images * s.to_channels;
  parallel_for(parallel, planes, 1 + elements_a_task / (s.to_height * s.to_width + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t p = begin; p < end; ++p) {
                   const std::int64_t plane = p / s.to_channels * s.channels + s.first_channel + p % s.to_channels;
                   for (std::int64_t row = 0; row < s.to_height; ++row)
                     std::memcpy(y + (p * s.to_height + row) * s.to_width,
                                 x + (plane * s.height + s.first_row + row) * s.width + s.first_column,
                                 static_cast<std::size_t>(s.to_width) * sizeof(float));
                 }
               });
}

}  // namespace bie::kernels
