// Weight-only products with integer activations for NEON: SMLAL, whose sums of int16 are kept for as many rows as they
// hold and never overflow.
#include <cstring>

#include "kernels/cpu/neon/q8_vectors.h"
#include "kernels/cpu/portable/weight_only_q8_loop.h"

namespace bie::kernels::cpu::neon {
namespace {

template <int width>
struct Product {
  struct Sum {
    int16x8_t low, high;  ///< of two outputs each, four rows side by side
  };
  using Codes = int8x16_t;
  static constexpr int rows = 3;
  static constexpr bool starts = width < 8;
  static constexpr int largest = width == 8 ? 128 : (1 << width) - 1;
  static constexpr int most = 32767 / (127 * largest) / (8 / width) * (8 / width);  ///< quads
  static Sum zero() { return {vdupq_n_s16(0), vdupq_n_s16(0)}; }
  static Codes codes(uint8x16_t field) { return signed_codes<width>(field); }
  template <int r>
  static int8x16_t row(const std::int8_t* u) {
    return vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const std::int32_t*>(u) + r));
  }
  template <int r>
  static Sum add(Sum sum, Codes codes, int8x16_t by) {
    return {vmlal_s8(sum.low, vget_low_s8(codes), vget_low_s8(by)), vmlal_high_s8(sum.high, codes, by)};
  }
  static int32x4_t wide(Sum sum) { return vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high)); }
};

}  // namespace

/// Magnitudes are compared by their bits, which rise as they do; NaN is above infinity.
float weight_only_q8_codes(const Q8CodesArgs& a, std::int32_t* sum) {
  const auto floats = [&](std::int32_t at) {  // beyond the last one 0
    if (at + 4 <= a.count) return vld1q_f32(a.x + at);
    float four[4] = {};
    for (std::int32_t i = at; i < a.count; ++i) four[i - at] = a.x[i];
    return vld1q_f32(four);
  };
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
  uint32x4_t most = vdupq_n_u32(0);
  for (std::int32_t i = 0; i < a.count; i += 4)
    most = vmaxq_u32(most, vandq_u32(vreinterpretq_u32_f32(floats(i)), magnitude));
  const std::uint32_t largest = vmaxvq_u32(most);
  float of_largest;
  std::memcpy(&of_largest, &largest, 4);
  const bool finite = largest < 0x7f800000, live = finite && of_largest >= 0x1p-100f;
  std::int8_t* u = a.u;
  const std::int64_t stride = std::int64_t{4} * a.rows;
  if (!live) {
    for (std::int32_t q = 0; q < a.quads; ++q, u += stride) std::memset(u, 0, 4);
    *sum = 0;
    return finite ? 0.0f : __builtin_nanf("");
  }
  const float32x4_t r = vdupq_n_f32(127.0f / of_largest);
  int32x4_t all = vdupq_n_s32(0);
  for (std::int32_t q = 0; q < a.quads; ++q, u += stride) {
    const int32x4_t code = vcvtnq_s32_f32(vmulq_f32(floats(4 * q), r));
    all = vaddq_s32(all, code);
    const int16x4_t words = vmovn_s32(code);
    const std::int32_t four = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(words, words))), 0);
    std::memcpy(u, &four, 4);
  }
  *sum = vaddvq_s32(all);
  return of_largest / 127.0f;
}

namespace {
void run(const WeightOnlyQ8Args& a) { q8::run<Q8Vectors, Product>(a); }
}  // namespace

const WeightOnlyQ8Tile weight_only_q8_tile = {Product<8>::rows, 1, weight_only_q8_codes, run};

}  // namespace bie::kernels::cpu::neon
