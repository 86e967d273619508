// Fused passes over dense float32 memory: one read, one write, no temporaries between the steps of a formula.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/torch_parallel.h"

namespace bie::ops {

/// body(begin, end) on disjoint ranges that cover [0, count).
template <class F>
void for_ranges(std::int64_t count, const F& body) {
  kernels::parallel_for(torch_parallel(), count, 16384, body);
}

/// clamp(rint(v), lo, hi) for integer bounds below 2^22. Adding 1.5 * 2^23 leaves no fraction bits, so the sum is
/// rounded to even; unlike rint() it is vectorised without SSE4.1.
inline float round_clamped(float v, float lo, float hi) {
  constexpr float shift = 0x1.8p23f;
  v = std::min(std::max(v, lo), hi);
  return (v + shift) - shift;
}

/// 1 for lo <= v <= hi, else 0. A factor and no condition, because GCC vectorises no arithmetic behind a condition.
inline float inside_range(float v, float lo, float hi) {
  return static_cast<float>(v >= lo) * static_cast<float>(v <= hi);
}

/// The sum of the terms that body(begin, end, terms) writes, in float64. Blocks are of one size and added in order, so
/// the sum does not depend on the number of threads.
template <class F>
double sum_of_terms(std::int64_t count, const F& body) {
  constexpr std::int64_t block = 2048, lanes = 8;
  std::vector<double> sums(static_cast<std::size_t>((count + block - 1) / block));
  const auto blocks = static_cast<std::int64_t>(sums.size());
  kernels::parallel_for(torch_parallel(), blocks, 8, [&](std::int64_t first, std::int64_t last) {
    float terms[block];
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t begin = b * block, end = std::min(count, begin + block);
      body(begin, end, terms);
      std::fill(terms + (end - begin), terms + block, 0.0f);
      double acc[lanes] = {};
      for (std::int64_t i = 0; i < block; i += lanes)
        for (std::int64_t j = 0; j < lanes; ++j) acc[j] += static_cast<double>(terms[i + j]);
      double sum = 0;
      for (const double part : acc) sum += part;
      sums[static_cast<std::size_t>(b)] = sum;
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace bie::ops
