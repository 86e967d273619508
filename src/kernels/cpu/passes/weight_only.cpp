#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/passes/chunks.h"

namespace bie::kernels::cpu {
namespace {

void multiplied(const float* factor, std::int64_t count, float* x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] * factor[i];
}

void floats(const void* x, Dtype dtype, const float* factor, std::int64_t count, float* to) {
  for_chunks(0, count, [&](std::int64_t first, std::int64_t n) {
    Floats buffer;
    const float* const wide = widened(x, dtype, first, n, buffer);
    for (std::int64_t i = 0; i < n; ++i) to[first + i] = wide[i];
  });
  if (factor != nullptr) multiplied(factor, count, to);
}

float sum(const float* x, std::int64_t count) {
  float parts[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int t = 0; t < 16; ++t) parts[t] += x[i + t];
  for (int t = 0; i < count; ++i, ++t) parts[t] += x[i];
  for (int d = 8; d > 0; d /= 2)
    for (int t = 0; t < d; ++t) parts[t] += parts[t + d];
  return parts[0];
}

void float_results(const float* y, const float* bias, std::int64_t count, float* to) {
  if (bias != nullptr)
    for (std::int64_t i = 0; i < count; ++i) to[i] = y[i] + bias[i];
  else
    for (std::int64_t i = 0; i < count; ++i) to[i] = y[i];
}

/// Rows of a tile are short: one of float32 is not to wait for what rounding to 16 bits sets up.
[[gnu::noinline]] void rounded_results(const float* y, const float* bias, std::int64_t count, void* to, Dtype dtype) {
  for_chunks(0, count, [&](std::int64_t first, std::int64_t n) {
    Floats buffer;
    float* const at = wide_place(to, dtype, first, buffer);
    const float* const from = y + first;
    if (bias != nullptr)
      for (std::int64_t i = 0; i < n; ++i) at[i] = from[i] + bias[first + i];
    else
      for (std::int64_t i = 0; i < n; ++i) at[i] = from[i];
    narrowed(at, n, to, dtype, first);
  });
}

void results(const float* y, const float* bias, std::int64_t count, void* to, Dtype dtype) {
  if (dtype == Dtype::f32) return float_results(y, bias, count, static_cast<float*>(to));
  rounded_results(y, bias, count, to, dtype);
}

}  // namespace

const WeightOnlyPasses BIE_PASS_SET::weight_only_passes = {floats, sum, results};

}  // namespace bie::kernels::cpu
