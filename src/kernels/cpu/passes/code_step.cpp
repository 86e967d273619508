#include "kernels/arithmetic/code_step.h"

#include "kernels/arithmetic/random.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/passes/chunks.h"

namespace bie::kernels::cpu {
namespace {

void open_moments(const std::int8_t* l8, const std::uint8_t* m8, float largest_l, float largest_m, std::int64_t count,
                  float* l, float* m) {
  for (std::int64_t j = 0; j < count; ++j) l[j] = largest_l * moment_share(static_cast<float>(l8[j]), 127);
  for (std::int64_t j = 0; j < count; ++j) m[j] = largest_m * moment_share(static_cast<float>(m8[j]), 255);
}

void move_moments(const void* grad, Dtype grad_dtype, const AdamNumbers& numbers, std::int64_t first,
                  std::int64_t count, float* g, float* l, float* m) {
  const AdamNumbers o = numbers;
  for_chunks(first, count, [&](std::int64_t at, std::int64_t n) {
    Floats wide;
    const float* const from = widened(grad, grad_dtype, at, n, wide);
    const std::int64_t to = at - first;
    for (std::int64_t j = 0; j < n; ++j) {
      const float finite = finite_or_zero(from[j]);
      g[to + j] = finite;
      l[to + j] = o.b1 * l[to + j] + o.d1 * finite;
      m[to + j] = o.b2 * m[to + j] + o.d2 * finite * finite;
    }
  });
}

float largest(const float* x, std::int64_t count) {
  float most = 0;
  for (std::int64_t j = 0; j < count; ++j) most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
  return most;
}

/// Random numbers have a loop of their own, because a loop over several widths becomes no vectors.
void keep_moments(const float* l, const float* m, float largest_l, float largest_m, std::uint64_t random,
                  std::int64_t first, std::int64_t count, std::int8_t* l8, std::uint8_t* m8) {
  for_chunks(0, count, [&](std::int64_t at, std::int64_t n) {
    std::int32_t uniforms[chunk], codes[chunk];
    for (std::int64_t j = 0; j < n; ++j) uniforms[j] = static_cast<std::int32_t>(random_bits(random, first + at + j));
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = l[at + j], u = static_cast<float>(uniforms[j] & 0xffff) * 0x1p-16f;
      const float code = moment_code(fabsf(x), largest_l, 127, u);
      codes[j] = static_cast<std::int32_t>(x < 0 ? -code : code);
    }
    for (std::int64_t j = 0; j < n; ++j) l8[at + j] = static_cast<std::int8_t>(codes[j]);
    const float least = largest_m < least_moment ? 0.0f : 1.0f;
    for (std::int64_t j = 0; j < n; ++j) {
      const float u = static_cast<float>(uniforms[j] >> 16 & 0xffff) * 0x1p-16f;
      const float code = moment_code(m[at + j], largest_m, 255, u);
      codes[j] = static_cast<std::int32_t>(code < least ? least : code);
    }
    for (std::int64_t j = 0; j < n; ++j) m8[at + j] = static_cast<std::uint8_t>(codes[j]);
  });
}

void sum_scales(const float* g, const std::int32_t* codes, const float* zero, std::int64_t count, float* sums) {
  for (std::int64_t j = 0; j < count; ++j) sums[j] += g[j] * (static_cast<float>(codes[j]) - zero[j]);
}

void move(const float* l, const float* m, const AdamNumbers& numbers, float rate, const float* scale, const float* zero,
          int last, std::uint64_t random, std::int64_t first, std::int64_t count, std::int32_t* codes,
          std::int8_t* rest) {
  const AdamNumbers o = numbers;
  const float unit = rest == nullptr ? 1.0f : 256.0f, top = static_cast<float>(last) * unit;
  const float low = rest == nullptr ? 0.0f : -128.0f, high = rest == nullptr ? top : top + 127;
  for_chunks(0, count, [&](std::int64_t at, std::int64_t n) {
    std::int32_t uniforms[chunk];
    for (std::int64_t j = 0; j < n; ++j)
      uniforms[j] = static_cast<std::int32_t>(random_bits(random, first + at + j) >> 40);
    std::int32_t places[chunk];
    if (rest == nullptr)
      for (std::int64_t j = 0; j < n; ++j) places[j] = codes[at + j];
    else
      for (std::int64_t j = 0; j < n; ++j) places[j] = 256 * codes[at + j] + rest[at + j];
    for (std::int64_t j = 0; j < n; ++j) {
      const float u = l[at + j] / (sqrtf(m[at + j]) + o.eps);
      places[j] = moved_place(places[j], rate * u / scale[at + j], o.decay, zero[at + j], unit, low, high,
                              static_cast<float>(uniforms[j]) * 0x1p-24f);
    }
    if (rest == nullptr) {
      for (std::int64_t j = 0; j < n; ++j) codes[at + j] = places[j];
      return;
    }
    for (std::int64_t j = 0; j < n; ++j) codes[at + j] = (places[j] + 128) >> 8;
    for (std::int64_t j = 0; j < n; ++j) rest[at + j] = static_cast<std::int8_t>(places[j] - 256 * codes[at + j]);
  });
}

}  // namespace

const CodeStepPasses BIE_PASS_SET::code_step_passes = {open_moments, move_moments, largest,
                                                       keep_moments, sum_scales,   move};

}  // namespace bie::kernels::cpu
