// Scaled accumulators to the output's dtype, and their signs, 16 at a time.
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/tile.h"
#include "kernels/cpu/with_dtype.h"

namespace bie::kernels::cpu::neon {
namespace {

/// Round to nearest even; NaN becomes 0x7fc0.
uint16x4_t to_bf16(float32x4_t value) {
  const uint32x4_t bits = vreinterpretq_u32_f32(value);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(value, value), rounded, vdupq_n_u32(0x7fc00000)), 16);
}

template <Dtype D>
void store4(int32x4_t acc, float32x4_t scale, char* out) {
  const float32x4_t y = vmulq_f32(vcvtq_f32_s32(acc), scale);
  if constexpr (D == Dtype::s32)
    vst1q_s32(reinterpret_cast<std::int32_t*>(out), acc);
  else if constexpr (D == Dtype::f32)
    vst1q_f32(reinterpret_cast<float*>(out), y);
  else
    vst1_u16(reinterpret_cast<std::uint16_t*>(out),
             D == Dtype::bf16 ? to_bf16(y) : vreinterpret_u16_f16(vcvt_f16_f32(y)));
}

template <Dtype D>
void store_as(const StoreArgs& a) {
  constexpr std::int64_t bytes = D == Dtype::f32 || D == Dtype::s32 ? 4 : 2;
  const float32x4_t scale = vdupq_n_f32(a.scale);
  char* const out = static_cast<char*>(a.out);
  std::int64_t i = 0;
  for (; i + 16 <= a.count; i += 16)
#pragma GCC unroll 4
    for (int j = 0; j < 16; j += 4) store4<D>(vld1q_s32(a.acc + i + j), scale, out + (i + j) * bytes);
  for (; i < a.count; i += 4) {
    const std::size_t left = a.count - i < 4 ? static_cast<std::size_t>(a.count - i) : 4;
    std::int32_t acc[4] = {};
    char last[16];
    std::memcpy(acc, a.acc + i, 4 * left);
    store4<D>(vld1q_s32(acc), scale, last);
    std::memcpy(out + i * bytes, last, left * bytes);
  }
}

/// Sixteen sums, four of each plane.
template <Dtype D>
void store_block(const StorePlanesArgs& a, std::int64_t p, std::int64_t c, float32x4_t scale) {
  constexpr std::int64_t bytes = D == Dtype::f32 || D == Dtype::s32 ? 4 : 2;
  const auto row = [&a, p, c](int i) { return vld1q_s32(a.acc + (p + i) * a.acc_stride + c); };
  const int32x4x2_t low = vtrnq_s32(row(0), row(1)), high = vtrnq_s32(row(2), row(3));
  const auto pair = [](int32x4_t x, int32x4_t y, bool upper) {
    const int64x2_t first = vreinterpretq_s64_s32(x), second = vreinterpretq_s64_s32(y);
    return vreinterpretq_s32_s64(upper ? vtrn2q_s64(first, second) : vtrn1q_s64(first, second));
  };
  const int32x4_t planes[4] = {pair(low.val[0], high.val[0], false), pair(low.val[1], high.val[1], false),
                               pair(low.val[0], high.val[0], true), pair(low.val[1], high.val[1], true)};
  char* out = static_cast<char*>(a.out) + (c * a.plane + p) * bytes;
  const std::int64_t left = a.pixels - p;
  if (left >= 4 && c + 4 <= a.columns) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store4<D>(planes[i], scale, out + i * a.plane * bytes);
    return;
  }
  for (int i = 0; i < 4 && c + i < a.columns; ++i) {
    char last[16];
    store4<D>(planes[i], scale, last);
    std::memcpy(out + i * a.plane * bytes, last, static_cast<std::size_t>((left < 4 ? left : 4) * bytes));
  }
}

template <Dtype D>
void store_planes_as(const StorePlanesArgs& a) {
  const float32x4_t scale = vdupq_n_f32(a.scale);
  for (std::int64_t c = 0; c < a.columns; c += 4)
    for (std::int64_t p = 0; p < a.pixels; p += 4) store_block<D>(a, p, c, scale);
}

/// Sixteen signs.
std::uint64_t signs16(const std::int32_t* acc, float32x4_t scale, const float* bias) {
  uint16x8_t halves[2];
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    float32x4_t y[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      y[i] = vmulq_f32(vcvtq_f32_s32(vld1q_s32(acc + 8 * h + 4 * i)), scale);
      if (bias != nullptr) y[i] = vaddq_f32(y[i], vld1q_f32(bias + 8 * h + 4 * i));
    }
    halves[h] = vuzp1q_u16(vreinterpretq_u16_u32(vcgezq_f32(y[0])), vreinterpretq_u16_u32(vcgezq_f32(y[1])));
  }
  const uint8x16_t mask = vuzp1q_u8(vreinterpretq_u8_u16(halves[0]), vreinterpretq_u8_u16(halves[1]));
  uint8x16_t bits = vandq_u8(mask, vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201)));
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) bits = vpaddq_u8(bits, bits);
  return vgetq_lane_u16(vreinterpretq_u16_u8(bits), 0);
}

}  // namespace

void store(const StoreArgs& a) {
  return with_dtype<Dtype::s32>(a.dtype, [&a](auto dtype) { return store_as<dtype.value>(a); });
}

void store_planes(const StorePlanesArgs& a) {
  return with_dtype<Dtype::s32>(a.dtype, [&a](auto dtype) { return store_planes_as<dtype.value>(a); });
}

std::uint64_t signs_of(const std::int32_t* acc, int count, float scale, const float* bias) {
  const float32x4_t by = vdupq_n_f32(scale);
  std::uint64_t bits = 0;
  int i = 0;
  for (; i + 16 <= count; i += 16) bits |= signs16(acc + i, by, bias == nullptr ? nullptr : bias + i) << i;
  if (i == count) return bits;
  const std::size_t left = static_cast<std::size_t>(count - i);
  std::int32_t sums[16] = {};
  float last[16] = {};
  std::memcpy(sums, acc + i, 4 * left);
  if (bias != nullptr) std::memcpy(last, bias + i, 4 * left);
  bits |= signs16(sums, by, bias == nullptr ? nullptr : last) << i;
  return bits & ((std::uint64_t{1} << count) - 1);
}

}  // namespace bie::kernels::cpu::neon
