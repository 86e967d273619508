#include "bie/kernels/planes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace bie::kernels {

void plane_means(const float* x, std::int64_t planes, std::int64_t count, float* y, const Parallel& parallel) {
  constexpr std::int64_t sums = 16, elements_a_task = 1 << 15;
  const float by = 1 / static_cast<float>(count);
  parallel_for(parallel, planes, 1 + elements_a_task / (count + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const float* const plane = x + p * count;
      float sum[sums] = {};
      std::int64_t i = 0;
      for (; i + sums <= count; i += sums)
        for (std::int64_t j = 0; j < sums; ++j) sum[j] += plane[i + j];
      for (std::int64_t j = 0; i + j < count; ++j) sum[j] += plane[i + j];
      for (std::int64_t half = sums / 2; half > 0; half /= 2)
        for (std::int64_t j = 0; j < half; ++j) sum[j] += sum[j + half];
      y[p] = sum[0] * by;
    }
  });
}

void strided_planes(const StridedPlanes& s, const float* x, float* y, const Parallel& parallel) {
  const std::int64_t out_h = s.out_height(), out_w = s.out_width();
  parallel_for(parallel, s.images * s.out_channels, 1 + (1 << 15) / (out_h * out_w + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t image = i / s.out_channels, c = i % s.out_channels;
                   float* to = y + i * out_h * out_w;
                   if (c >= s.channels) {
                     std::fill(to, to + out_h * out_w, 0.0f);
                     continue;
                   }
                   const float* const from = x + (image * s.channels + c) * s.height * s.width;
                   for (std::int64_t row = 0; row < out_h; ++row)
                     for (std::int64_t column = 0; column < out_w; ++column)
                       *to++ = from[row * s.stride * s.width + column * s.stride];
                 }
               });
}

void softmax_rows(const float* x, std::int64_t rows, std::int64_t count, float* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += count, y += count) {
    const float largest = *std::max_element(x, x + count);
    float sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += y[i] = std::exp(x[i] - largest);
    for (std::int64_t i = 0; i < count; ++i) y[i] /= sum;
  }
}

}  // namespace bie::kernels
