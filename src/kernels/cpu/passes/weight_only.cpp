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

/// Of magnitudes, whose bits rise as they do; NaN is above infinity.
std::int32_t largest(const float* x, std::int64_t count) {
  constexpr int lanes = 32;
  std::int32_t most[lanes] = {};
  const auto take = [&](float value, int lane) {
    const auto bits = static_cast<std::int32_t>(bits_from_float(value) & 0x7fffffffu);
    most[lane] = bits > most[lane] ? bits : most[lane];
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int t = 0; t < lanes; ++t) take(x[i + t], t);
  for (int t = 0; i < count; ++i, ++t) take(x[i], t);
  std::int32_t all = 0;
  for (int t = 0; t < lanes; ++t) all = most[t] > all ? most[t] : all;
  return all;
}

/// rint of a product below 2^22: the sum with 1.5 * 2^23 has it in its low bits.
std::int32_t rounded(float x, float r) {
  return static_cast<std::int32_t>(bits_from_float(x * r + 12582912.0f)) - 0x4b400000;
}

float codes(const float* x, std::int32_t count, std::int32_t quads, int rows, std::int8_t* u, std::int32_t* sum) {
  const std::int32_t most = largest(x, count);
  const std::int64_t stride = std::int64_t{4} * rows;
  *sum = 0;
  const float a = float_from_bits(static_cast<std::uint32_t>(most));
  if (most >= 0x7f800000 || a < 0x1p-100f) {
    for (std::int32_t q = 0; q < quads; ++q, u += stride)
      for (int b = 0; b < 4; ++b) u[b] = 0;
    return most >= 0x7f800000 ? float_from_bits(0x7fc00000u) : 0.0f;
  }
  const float r = 127.0f / a;
  std::int32_t all = 0;
  std::int64_t i = 0;
  if (rows == 1) {
    for (; i < count; ++i) {
      const std::int32_t code = rounded(x[i], r);
      all += code;
      u[i] = static_cast<std::int8_t>(code);
    }
    for (; i < std::int64_t{4} * quads; ++i) u[i] = 0;
  } else {
    std::int8_t side[chunk];
    for_chunks(0, count, [&](std::int64_t first, std::int64_t n) {
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int32_t code = rounded(x[first + j], r);
        all += code;
        side[j] = static_cast<std::int8_t>(code);
      }
      for (std::int64_t j = n; j < (n + 3) / 4 * 4; ++j) side[j] = 0;
      for (std::int64_t j = 0; j < n; j += 4, u += stride)
        for (int b = 0; b < 4; ++b) u[b] = side[j + b];
    });
    for (std::int64_t q = (std::int64_t{count} + 3) / 4; q < quads; ++q, u += stride)
      for (int b = 0; b < 4; ++b) u[b] = 0;
  }
  *sum = all;
  return a / 127.0f;
}

void results(const float* y, const float* bias, std::int64_t count, void* to, Dtype dtype) {
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

}  // namespace

const WeightOnlyPasses BIE_PASS_SET::weight_only_passes = {floats, sum, codes, results};

}  // namespace bie::kernels::cpu
