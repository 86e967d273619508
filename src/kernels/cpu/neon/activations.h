// Activations of any dtype as floats, 16 at a time, and rows of them; what is left of a row goes through a zero-padded
// copy. Private to this folder: everything but encode_signs sits in an unnamed namespace.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::neon {

/// encode() of Code::bits and Code::u8_b1.
bool encode_signs(const EncodeArgs& a);

namespace {

#define BIE_INLINE [[gnu::always_inline]] inline

template <Dtype D>
constexpr std::int64_t element_bytes = D == Dtype::f32  ? 4
                                       : D == Dtype::s8 ? 1
                                                        : 2;

/// Sixteen elements.
struct Floats {
  float32x4_t v[4];
};

template <Dtype D>
BIE_INLINE Floats load16(const char* x) {
  Floats f;
  if constexpr (D == Dtype::f32) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) f.v[i] = vld1q_f32(reinterpret_cast<const float*>(x) + 4 * i);
  } else if constexpr (D == Dtype::s8) {
    const int8x16_t bytes = vld1q_s8(reinterpret_cast<const std::int8_t*>(x));
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    f = {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
          vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
  } else {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const uint16x8_t halves = vld1q_u16(reinterpret_cast<const std::uint16_t*>(x) + 8 * i);
      if constexpr (D == Dtype::bf16) {
        f.v[2 * i] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16));
        f.v[2 * i + 1] = vreinterpretq_f32_u32(vshll_high_n_u16(halves, 16));
      } else {
        f.v[2 * i] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves)));
        f.v[2 * i + 1] = vcvt_high_f32_f16(vreinterpretq_f16_u16(halves));
      }
    }
  }
  return f;
}

enum class Added : std::uint8_t { nothing, one, one_each };

/// The bias of an encoder: none, one number, or one number per element.
template <Added kind>
struct Bias {
  float32x4_t all;
  const float* each;

  BIE_INLINE void add_to(Floats& f, std::int64_t at) const {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      f.v[i] =
          kind == Added::nothing ? f.v[i] : vaddq_f32(f.v[i], kind == Added::one ? all : vld1q_f32(each + at + 4 * i));
  }
};

template <Added kind>
Bias<kind> bias_of(const EncodeArgs& a) {
  return {vdupq_n_f32(kind == Added::one && a.bias != nullptr ? *a.bias : 0), a.bias};
}

/// The last elements of a row, padded with zeros, and what is added to them.
template <Dtype D, int most, Added kind>
struct Last {
  char x[most * element_bytes<D>] = {};
  float each[most] = {};
  Bias<kind> bias;

  Last(const EncodeArgs& a, std::int64_t first, const Bias<kind>& added) : bias(added) {
    const std::size_t left = static_cast<std::size_t>(a.count - first);
    std::memcpy(x, static_cast<const char*>(a.x) + first * element_bytes<D>, left * element_bytes<D>);
    if (kind == Added::one_each) std::memcpy(each, added.each + first, left * 4);
    bias.each = each;
  }
};

template <Dtype D>
constexpr bool is_code = D == Dtype::s8;

/// Rows one by one; a row that `sure` is not of is made by portable's loops.
template <bool (*row)(const EncodeArgs&), bool sure>
bool rows(EncodeArgs a) {
  const std::int64_t written = a.code == Code::bits ? (a.count + 31) / 32 * 4 : a.count;
  const std::int64_t count = a.rows;
  a.rows = 1;
  bool finite = true;
  for (std::int64_t r = 0; r < count; ++r) {
    const bool good = row(a);
    if (sure || good)
      finite &= good;
    else
      finite &= portable::encode(a);
    char* const out = static_cast<char*>(a.out);
    if (written < a.row_bytes) std::memset(out + written, 0, static_cast<std::size_t>(a.row_bytes - written));
    a.x = static_cast<const char*>(a.x) + a.x_stride;
    a.out = out + a.out_stride;
  }
  return finite;
}

}  // namespace
}  // namespace bie::kernels::cpu::neon
