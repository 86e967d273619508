#include "kernels/arithmetic/codes.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/passes/chunks.h"

namespace bie::kernels::cpu {
namespace {

/// Extremes of neighbours are kept apart, so that the loop has no chain of comparisons to wait for.
struct LaneExtremes {
  static constexpr int lanes = 32;
  float min[lanes], max[lanes], rest[lanes];  ///< rest: 0, or NaN where a lane met what is not finite

  void take(const float* x, std::int64_t count, float gain) {
    for (std::int64_t i = 0; i < count; i += lanes) {
      const int n = count - i < lanes ? static_cast<int>(count - i) : lanes;
      if (n == lanes)
        for (int j = 0; j < lanes; ++j) take_one(x[i + j] * gain, j);
      else
        for (int j = 0; j < n; ++j) take_one(x[i + j] * gain, j);
    }
  }
  void take_one(float v, int lane) {
    min[lane] = v < min[lane] ? v : min[lane];
    max[lane] = v > max[lane] ? v : max[lane];
    rest[lane] += v - v;
  }
};

Extremes extremes(const void* x, Dtype dtype, std::int64_t first, std::int64_t count, float gain) {
  LaneExtremes all;
  for (int j = 0; j < LaneExtremes::lanes; ++j) {
    all.min[j] = float_from_bits(0x7f800000u);
    all.max[j] = -all.min[j];
    all.rest[j] = 0;
  }
  for_chunks(first, count, [&](std::int64_t at, std::int64_t n) {
    Floats buffer;
    all.take(widened(x, dtype, at, n, buffer), n, gain);
  });
  Extremes total{all.min[0], all.max[0], true};
  for (int j = 0; j < LaneExtremes::lanes; ++j) {
    total.min = all.min[j] < total.min ? all.min[j] : total.min;
    total.max = all.max[j] > total.max ? all.max[j] : total.max;
    total.all_finite = total.all_finite && all.rest[j] == 0;
  }
  return total;
}

void amax_quantize(const void* x, Dtype dtype, std::int64_t first, std::int64_t count, const AmaxFactor& factor,
                   float lo, float hi, void* q) {
  const AmaxFactor by = factor;
  for_chunks(first, count, [&](std::int64_t at, std::int64_t n) {
    Floats buffer, codes;
    const float* const from = widened(x, dtype, at, n, buffer);
    float* const to = wide_place(q, dtype, at, codes);
    for (std::int64_t i = 0; i < n; ++i) to[i] = amax_code(from[i], by, lo, hi);
    narrowed(to, n, q, dtype, at);
  });
}

/// The bounds are arguments, because GCC makes branches of a clamp between constants.
void grad_codes(const float* v, std::int64_t count, float gain, const AmaxFactor& factor, float lo, float hi,
                std::int8_t* q) {
  for (std::int64_t i = 0; i < count; ++i) q[i] = static_cast<std::int8_t>(grad_code(v[i] * gain, factor, lo, hi));
}

void int8_grad(const void* g, Dtype dtype, std::int64_t first, std::int64_t count, float gain, const AmaxFactor& factor,
               std::int8_t* q) {
  const AmaxFactor by = factor;
  for_chunks(first, count, [&](std::int64_t at, std::int64_t n) {
    Floats buffer;
    grad_codes(widened(g, dtype, at, n, buffer), n, gain, by, -127, 127, q + at);
  });
}

void binary_init(const void* w, Dtype dtype, std::int64_t first, std::int64_t count, float centre,
                 const AmaxFactor& factor, std::int8_t* q) {
  const AmaxFactor by = factor;
  for_chunks(first, count, [&](std::int64_t at, std::int64_t n) {
    Floats buffer;
    const float* const from = widened(w, dtype, at, n, buffer);
    for (std::int64_t i = 0; i < n; ++i) q[at + i] = static_cast<std::int8_t>(centred_code(from[i], centre, by));
  });
}

}  // namespace

const AmaxCodesPasses BIE_PASS_SET::amax_codes_passes = {extremes, amax_quantize, int8_grad, binary_init};

}  // namespace bie::kernels::cpu
