// Functions of single numbers, layer normalisation and parts of images, all in float32 and NCHW. Each number is
// computed in double and rounded once, so that results do not depend on vectors.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"

namespace bie::kernels {

/// Numbered as in net files. a and b are numbers of the node.
enum class Function : std::int64_t {
  hard_sigmoid,  ///< max(0, min(1, a * x + b))
  hard_swish,    ///< x * max(0, min(1, x / 6 + 1 / 2))
  tanh,
  elu,        ///< x where x > 0, else a * (exp(x) - 1)
  gelu,       ///< x * (1 + erf(x / sqrt(2))) / 2
  gelu_tanh,  ///< x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2
  softplus,   ///< log(1 + exp(x))
  erf,
  power,  ///< x^a: NaN where x < 0 and a is no whole number
};
inline constexpr auto last_function = Function::power;

void apply_function(Function function, float a, float b, const float* x, std::int64_t count, float* y, const Parallel&);

/// y = (x - mean) / sqrt(variance + eps) * scale + shift over rows of `count`; the variance is that of the row itself,
/// divided by count. scale and shift [count] may be null: 1 and 0.
/// Source: Ba, Kiros and Hinton 2016, <https://arxiv.org/abs/1607.06450>.
void layer_norm(const float* x, std::int64_t rows, std::int64_t count, float eps, const float* scale,
                const float* shift, float* y, const Parallel&);

/// y [images, to_channels, to_height, to_width] is x [images, channels, height, width] from first_channel, first_row
/// and first_column on.
struct CropShape {
  std::int64_t images, channels, height, width, first_channel, first_row, first_column, to_channels, to_height,
      to_width;
};
void crop_planes(const CropShape&, const float* x, float* y, const Parallel&);

}  // namespace bie::kernels
