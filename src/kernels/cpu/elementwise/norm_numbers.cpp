#include <cmath>

#include "bie/kernels/code_tail.h"

namespace bie::kernels {

void norm_numbers(std::int64_t channels, const float* mean, const float* var, const float* weight, const float* bias,
                  float eps, float* scale, float* shift) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const float a = 1 / std::sqrt(var[c] + eps) * (weight != nullptr ? weight[c] : 1);
    scale[c] = a;
    shift[c] = (bias != nullptr ? bias[c] : 0) - mean[c] * a;
  }
}

}  // namespace bie::kernels
