// 128-bit vector operations for weight-only products with integer activations. Used by neon and dotprod.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "bie/kernels/dtype.h"

namespace bie::kernels::cpu::neon {
namespace {

struct Q8Vectors {
  using Ints = int32x4_t;
  static constexpr int lanes = 4, columns = 4;

  template <Dtype dtype>
  static float32x4_t floats(const char* at) {
    if constexpr (dtype == Dtype::f32) return vld1q_f32(reinterpret_cast<const float*>(at));
    const uint16x4_t halves = vld1_u16(reinterpret_cast<const std::uint16_t*>(at));
    if constexpr (dtype == Dtype::f16) return vcvt_f32_f16(vreinterpret_f16_u16(halves));
    return vreinterpretq_f32_u32(vshll_n_u16(halves, 16));
  }
  static float32x4_t of_bytes(const char* at) {
    const auto* const byte = reinterpret_cast<const std::uint8_t*>(at);
    const std::uint32_t four[4] = {byte[0], byte[1], byte[2], byte[3]};
    return vcvtq_f32_u32(vld1q_u32(four));
  }
  static float32x4_t of_ints(int32x4_t x) { return vcvtq_f32_s32(x); }
  static float32x4_t load(const float* at) { return vld1q_f32(at); }
  static void store(float* at, float32x4_t x) { vst1q_f32(at, x); }
  static float32x4_t splat(float x) { return vdupq_n_f32(x); }
  static int32x4_t splat(std::int32_t x) { return vdupq_n_s32(x); }
  static int32x4_t plus(int32x4_t a, int32x4_t b) { return vaddq_s32(a, b); }
  static float32x4_t less(float32x4_t a, float32x4_t b) { return vsubq_f32(a, b); }
  static float32x4_t times(float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); }
  static float32x4_t times_plus(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
  static float32x4_t times_less(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(vnegq_f32(c), a, b); }

  /// The codes at bit width * f of the bytes of a line.
  template <int width>
  static uint8x16_t field(const char* at, int f) {
    const uint8x16_t line = vld1q_u8(reinterpret_cast<const std::uint8_t*>(at));
    const uint8x16_t moved = f == 0 ? line : vshlq_u8(line, vdupq_n_s8(static_cast<std::int8_t>(-width * f)));
    return width * (f + 1) == 8 ? moved : vandq_u8(moved, vdupq_n_u8(static_cast<std::uint8_t>((1 << width) - 1)));
  }
};

/// Codes as signed numbers: of 8 bits less 128.
template <int width>
int8x16_t signed_codes(uint8x16_t field) {
  return vreinterpretq_s8_u8(width == 8 ? veorq_u8(field, vdupq_n_u8(0x80)) : field);
}

}  // namespace
}  // namespace bie::kernels::cpu::neon
