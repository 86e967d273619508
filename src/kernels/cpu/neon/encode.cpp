// Activations to codes and signs to words, 16 elements at a time; what is left of a row goes through a zero-padded
// copy.
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::neon {
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

/// What is added.
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

// Signs. They are read off the bits of floats, in which no -0 may be left: adding +0 sees to that.

/// The sign and seven bits of the exponent of sixteen floats.
BIE_INLINE uint8x16_t top_bytes(const Floats& f) {
  const auto halves = [&f](int i) {
    return vuzp2q_u16(vreinterpretq_u16_f32(f.v[i]), vreinterpretq_u16_f32(f.v[i + 1]));
  };
  return vuzp2q_u8(vreinterpretq_u8_u16(halves(0)), vreinterpretq_u8_u16(halves(2)));
}

/// From 2^127 on, where NaN and infinity are too, the seven bits are all ones.
constexpr std::uint8_t past_most_numbers = 0xfe;

BIE_INLINE uint8x16_t bit_of_each() { return vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201)); }

/// 64 masks to bits.
BIE_INLINE void put_bits(const uint8x16_t (&mask)[4], char* out) {
  const uint8x16_t bits = bit_of_each();
  const uint8x16_t quarters = vpaddq_u8(vpaddq_u8(vandq_u8(mask[0], bits), vandq_u8(mask[1], bits)),
                                        vpaddq_u8(vandq_u8(mask[2], bits), vandq_u8(mask[3], bits)));
  vst1_u8(reinterpret_cast<std::uint8_t*>(out), vget_low_u8(vpaddq_u8(quarters, quarters)));
}

/// Masks of 16 elements that are >= 0; `top` keeps the largest exponent.
template <Dtype D, Added kind>
BIE_INLINE uint8x16_t signs16(const char* x, const Bias<kind>& bias, std::int64_t at, uint8x16_t& top) {
  Floats f = load16<D>(x + at * element_bytes<D>);
  bias.add_to(f, at);
#pragma GCC unroll 4
  for (int i = 0; i < 4 && kind == Added::one_each; ++i) f.v[i] = vaddq_f32(f.v[i], vdupq_n_f32(0));
  const uint8x16_t bytes = top_bytes(f);
  top = vmaxq_u8(top, vshlq_n_u8(bytes, 1));
  return vcgezq_s8(vreinterpretq_s8_u8(bytes));
}

template <Dtype D>
constexpr bool is_code = D == Dtype::s8;

template <Code C, class Mask>
BIE_INLINE void put_signs(std::int64_t at, const Mask& mask, char* out) {
  if constexpr (C == Code::bits) {
    const uint8x16_t masks[4] = {mask(at), mask(at + 16), mask(at + 32), mask(at + 48)};
    put_bits(masks, out + at / 8);
  } else {
#pragma GCC unroll 4
    for (int i = 0; i < 64; i += 16)
      vst1q_u8(reinterpret_cast<std::uint8_t*>(out) + at + i, vandq_u8(mask(at + i), vdupq_n_u8(2)));
  }
}

/// False where a row may hold NaN or infinity; its signs are then not to be trusted.
template <Dtype D, Code C, Added kind>
bool sign_row(const EncodeArgs& a) {
  const char* const x = static_cast<const char*>(a.x);
  char* const out = static_cast<char*>(a.out);
  Bias<kind> bias = bias_of<kind>(a);
  bias.all = vaddq_f32(bias.all, vdupq_n_f32(0));
  uint8x16_t top = vdupq_n_u8(0);
  const auto masks_of = [&](const char* from, const Bias<kind>& added) {
    return [from, &added, &top](std::int64_t at) {
      if constexpr (is_code<D>) return vcgezq_s8(vld1q_s8(reinterpret_cast<const std::int8_t*>(from) + at));
      return signs16<D>(from, added, at, top);
    };
  };
  std::int64_t i = 0;
  for (; i + 64 <= a.count; i += 64) put_signs<C>(i, masks_of(x, bias), out);
  if (i < a.count) {
    const std::size_t left = static_cast<std::size_t>(a.count - i);
    const Last<D, 64, kind> last(a, i, bias);
    char codes[64];
    put_signs<C>(0, masks_of(last.x, last.bias), codes);
    if constexpr (C == Code::bits) {
      std::uint64_t bits;
      std::memcpy(&bits, codes, 8);
      bits &= (std::uint64_t{1} << left) - 1;
      std::memcpy(out + i / 8, &bits, (left + 31) / 32 * 4);
    } else {
      std::memcpy(out + i, codes, left);
    }
  }
  return vmaxvq_u8(top) < past_most_numbers;
}

// Codes.

template <Code C>
constexpr std::int8_t offset_of = C == Code::u8_s4 ? 8 : 0;

/// clamp(rint(x / step), lo, hi) of float32 division. A product with 1 / step differs from the quotient by less than
/// 3 * 2^-24 of it, that is by less than 2^-14 below 2^8, and beyond both are clamped: only where it is that near to a
/// half do the divisions run. NaN and infinity are among those, and so is every quotient of a step whose reciprocal is
/// no normal number.
struct Quantiser {
  float32x4_t step, reciprocal;
  int8x16_t lo, hi;

  explicit Quantiser(const EncodeArgs& a)
      : step(vdupq_n_f32(a.step)),
        reciprocal(vdupq_n_f32(a.step > 0x1p-100f && a.step < 0x1p100f ? 1.0f / a.step : __builtin_nanf(""))),
        lo(vdupq_n_s8(static_cast<std::int8_t>(a.lo))),
        hi(vdupq_n_s8(static_cast<std::int8_t>(a.hi))) {}

  /// Sums with 1.5 * 2^23 hold in their bits x / step as whole numbers. `off` keeps the largest distance from a whole
  /// number, NaN once there was one.
  BIE_INLINE void round(const Floats& f, float32x4_t (&whole)[4], float32x4_t& off) const {
    const float32x4_t shift = vdupq_n_f32(0x1.8p23f);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float32x4_t quotient = vmulq_f32(f.v[i], reciprocal);
      whole[i] = vaddq_f32(quotient, shift);
      off = vmaxq_f32(off, vabdq_f32(quotient, vsubq_f32(whole[i], shift)));
    }
  }
  /// Whether each of these distances leaves no doubt.
  BIE_INLINE static bool is_far_from_half(float32x4_t off) {
    const uint16x4_t far = vmovn_u32(vcltq_f32(off, vdupq_n_f32(0.5f - 0x1p-14f)));
    return vget_lane_u64(vreinterpret_u64_u16(far), 0) == ~std::uint64_t{0};
  }
  BIE_INLINE int8x16_t codes(const float32x4_t (&whole)[4]) const {
    int32x4_t q[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) q[i] = vqsubq_s32(vreinterpretq_s32_f32(whole[i]), vdupq_n_s32(0x4b400000));
    return clamped(q);
  }
  /// False where one is NaN or infinite.
  bool exact(const Floats& f, int8x16_t& to) const {
    float32x4_t odd = vdupq_n_f32(0);  // NaN once NaN or infinity was seen
    int32x4_t q[4];
    for (int i = 0; i < 4; ++i) {
      odd = vfmaq_f32(odd, f.v[i], vdupq_n_f32(0));
      q[i] = vcvtnq_s32_f32(vdivq_f32(f.v[i], step));
    }
    to = clamped(q);
    return vminvq_u32(vceqq_f32(odd, odd)) != 0;
  }

 private:
  BIE_INLINE int8x16_t clamped(const int32x4_t (&q)[4]) const {
    const int16x8_t low = vqmovn_high_s32(vqmovn_s32(q[0]), q[1]), high = vqmovn_high_s32(vqmovn_s32(q[2]), q[3]);
    const int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(low), high);
    return vminq_s8(vmaxq_s8(bytes, lo), hi);
  }
};

/// 32 codes. False where an element is NaN or infinite.
template <Dtype D, Code C, Added kind>
BIE_INLINE bool codes32(const Quantiser& quantiser, const char* x, const Bias<kind>& bias, std::int64_t at,
                        std::int8_t* out) {
  float32x4_t whole[2][4], off = vdupq_n_f32(0);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    Floats f = load16<D>(x + (at + 16 * i) * element_bytes<D>);
    bias.add_to(f, at + 16 * i);
    quantiser.round(f, whole[i], off);
  }
  int8x16_t codes[2] = {quantiser.codes(whole[0]), quantiser.codes(whole[1])};
  bool finite = true;
  if (!Quantiser::is_far_from_half(off)) {
    for (int i = 0; i < 2; ++i) {
      Floats f = load16<D>(x + (at + 16 * i) * element_bytes<D>);
      bias.add_to(f, at + 16 * i);
      finite &= quantiser.exact(f, codes[i]);
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    vst1q_s8(out + at + 16 * i, offset_of<C> == 0 ? codes[i] : vaddq_s8(codes[i], vdupq_n_s8(offset_of<C>)));
  return finite;
}

template <Dtype D, Code C, Added kind>
bool code_row(const EncodeArgs& a) {
  const Quantiser quantiser(a);
  const Bias<kind> bias = bias_of<kind>(a);
  const char* const x = static_cast<const char*>(a.x);
  auto* const out = static_cast<std::int8_t*>(a.out);
  bool finite = true;
  std::int64_t i = 0;
  for (; i + 32 <= a.count; i += 32) finite &= codes32<D, C>(quantiser, x, bias, i, out);
  if (i < a.count) {
    const std::size_t left = static_cast<std::size_t>(a.count - i);
    const Last<D, 32, kind> last(a, i, bias);
    std::int8_t codes[32];
    finite &= codes32<D, C>(quantiser, last.x, last.bias, 0, codes);
    std::memcpy(out + i, codes, left);
  }
  return finite;
}

/// Codes as they are.
template <Code C>
bool moved_row(const EncodeArgs& a) {
  const auto* const x = static_cast<const std::int8_t*>(a.x);
  auto* const out = static_cast<std::int8_t*>(a.out);
  constexpr std::int8_t offset = offset_of<C>;
  std::int64_t i = 0;
  for (; i + 16 <= a.count; i += 16) vst1q_s8(out + i, vaddq_s8(vld1q_s8(x + i), vdupq_n_s8(offset)));
  for (; i < a.count; ++i) out[i] = static_cast<std::int8_t>(x[i] + offset);
  return true;
}

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

template <Dtype D, Code C>
bool encode_signs(const EncodeArgs& a) {
  if constexpr (!is_code<D>)
    if (a.bias != nullptr && a.bias_step != 0) return rows<sign_row<D, C, Added::one_each>, false>(a);
  return rows<sign_row<D, C, Added::one>, is_code<D>>(a);
}

template <Dtype D, Code C>
bool encode_codes(const EncodeArgs& a) {
  if constexpr (is_code<D>) {
    return rows<moved_row<C>, true>(a);
  } else {
    if (a.bias == nullptr) return rows<code_row<D, C, Added::nothing>, true>(a);
    if (a.bias_step == 0) return rows<code_row<D, C, Added::one>, true>(a);
    return rows<code_row<D, C, Added::one_each>, true>(a);
  }
}

template <Dtype D>
bool encode_dtype(const EncodeArgs& a) {
  switch (a.code) {
    case Code::bits: return encode_signs<D, Code::bits>(a);
    case Code::u8_b1: return encode_signs<D, Code::u8_b1>(a);
    case Code::s8: return encode_codes<D, Code::s8>(a);
    case Code::u8_s4: return encode_codes<D, Code::u8_s4>(a);
    default: return portable::encode(a);
  }
}

/// Sixteen pixels of up to 32 channels. Each channel's signs come in at the top of the words, inverted.
template <Dtype D>
BIE_INLINE void planes16(const char* x, std::int64_t plane_bytes, const float* bias, int channels, Floats& odd,
                         std::uint32_t* out) {
  uint32x4_t word[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) word[i] = vdupq_n_u32(0);
#pragma GCC unroll 4
  for (int c = 0; c < channels; ++c, x += plane_bytes) {
    const float32x4_t added = vdupq_n_f32((D == Dtype::s8 || bias == nullptr ? 0.0f : bias[c]) + 0.0f);
    const Floats f = load16<D>(x);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float32x4_t xs = vaddq_f32(f.v[i], added);
      if constexpr (D != Dtype::s8) odd.v[i] = vfmaq_f32(odd.v[i], xs, vdupq_n_f32(0));
      word[i] = vsriq_n_u32(vreinterpretq_u32_f32(xs), word[i], 1);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) vst1q_u32(out + 4 * i, vshlq_u32(vmvnq_u32(word[i]), vdupq_n_s32(channels - 32)));
}

template <Dtype D>
bool sign_planes_as(const SignPlanesArgs& a) {
  Floats odd = {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}};  // NaN once one was seen
  for (std::int64_t first = 0; first < a.channels; first += 32) {
    const int channels = static_cast<int>(a.channels - first < 32 ? a.channels - first : 32);
    const float* const bias = a.bias == nullptr ? nullptr : a.bias + first;
    const char* const x = static_cast<const char*>(a.x) + first * a.plane * element_bytes<D>;
    std::uint32_t* const out = a.out + first / 32 * a.word_stride;
    if (a.pixels >= 16) {
      for (std::int64_t p = 0; p < a.pixels; p += 16) {
        const std::int64_t at = p + 16 <= a.pixels ? p : a.pixels - 16;  // the last ones of them once more
        planes16<D>(x + at * element_bytes<D>, a.plane * element_bytes<D>, bias, channels, odd, out + at);
      }
      continue;
    }
    const std::size_t few = static_cast<std::size_t>(a.pixels);
    char last[32][16 * element_bytes<D>] = {};
    std::uint32_t words[16];
    for (int c = 0; c < channels; ++c) std::memcpy(last[c], x + c * a.plane * element_bytes<D>, few * element_bytes<D>);
    planes16<D>(last[0], sizeof last[0], bias, channels, odd, words);
    std::memcpy(out, words, 4 * few);
  }
  const float32x4_t any = vaddq_f32(vaddq_f32(odd.v[0], odd.v[1]), vaddq_f32(odd.v[2], odd.v[3]));
  return vminvq_u32(vceqq_f32(any, any)) != 0;
}

/// Codes of sixteen neighbouring pixels of a channel.
template <Dtype D, Code C>
class PlaneCodes {
 public:
  explicit PlaneCodes(const CodePlanesArgs& a)
      : quantiser_(EncodeArgs{nullptr, a.dtype, 0, nullptr, 0, a.step, a.lo, a.hi, a.code, nullptr, 0}) {}

  BIE_INLINE uint8x16_t operator()(const char* x, float bias) {
    if constexpr (is_code<D>) {
      const int8x16_t codes = vld1q_s8(reinterpret_cast<const std::int8_t*>(x));
      if constexpr (C == Code::u8_b1) return vandq_u8(vcgezq_s8(codes), vdupq_n_u8(2));
      return with_offset(codes);
    }
    Floats f = load16<D>(x);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) f.v[i] = vaddq_f32(f.v[i], vdupq_n_f32(bias));
    if constexpr (C == Code::u8_b1) {
      uint16x8_t mask[2];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) odd_ = vfmaq_f32(odd_, f.v[i], vdupq_n_f32(0));
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i)
        mask[i] = vuzp1q_u16(vreinterpretq_u16_u32(vcgezq_f32(f.v[2 * i])),
                             vreinterpretq_u16_u32(vcgezq_f32(f.v[2 * i + 1])));
      return vandq_u8(vuzp1q_u8(vreinterpretq_u8_u16(mask[0]), vreinterpretq_u8_u16(mask[1])), vdupq_n_u8(2));
    }
    float32x4_t whole[4], off = vdupq_n_f32(0);
    quantiser_.round(f, whole, off);
    int8x16_t codes = quantiser_.codes(whole);
    if (!Quantiser::is_far_from_half(off)) finite_ &= quantiser_.exact(f, codes);
    return with_offset(codes);
  }
  bool finite() const { return finite_ && vminvq_u32(vceqq_f32(odd_, odd_)) != 0; }

 private:
  static uint8x16_t with_offset(int8x16_t codes) {
    return vreinterpretq_u8_s8(offset_of<C> == 0 ? codes : vaddq_s8(codes, vdupq_n_s8(offset_of<C>)));
  }
  const Quantiser quantiser_;
  float32x4_t odd_ = vdupq_n_f32(0);  // of signs: NaN once NaN or infinity was seen
  bool finite_ = true;
};

/// Row i becomes column i.
BIE_INLINE void transpose(uint8x16_t (&rows)[16]) {
  // Four times what lies eight rows apart is interleaved: a byte's row and column move one bit on each time.
#pragma GCC unroll 4
  for (int time = 0; time < 4; ++time) {
    uint8x16_t next[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      next[2 * i] = vzip1q_u8(rows[i], rows[i + 8]);
      next[2 * i + 1] = vzip2q_u8(rows[i], rows[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = next[i];
  }
}

/// Sixteen pixels, those of a channel `channel_bytes` behind those of the one before, to where they belong.
template <Dtype D, Code C>
void put_pixels(PlaneCodes<D, C>& codes_of, const CodePlanesArgs& a, const char* x, std::int64_t channel_bytes,
                const std::int64_t (&to)[16], int pixels) {
  char* const out = static_cast<char*>(a.out);
  const auto bias = [&a](std::int64_t c) { return a.bias == nullptr ? 0.0f : a.bias[c]; };
  if (a.row_bytes == 4 && pixels == 16 && to[15] - to[0] == 60) {
    uint8x16x4_t codes = {{vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)}};
    for (int i = 0; i < 4 && i < a.channels; ++i) codes.val[i] = codes_of(x + i * channel_bytes, bias(i));
    vst4q_u8(reinterpret_cast<std::uint8_t*>(out + to[0]), codes);
    return;
  }
  for (std::int64_t c = 0; c < a.row_bytes; c += 16) {
    uint8x16_t rows[16];
    const std::int64_t channels = a.channels - c < 16 ? a.channels - c : 16;
    for (std::int64_t i = 0; i < 16; ++i)
      rows[i] = i < channels ? codes_of(x + (c + i) * channel_bytes, bias(c + i)) : vdupq_n_u8(0);
    transpose(rows);
    if (c + 16 <= a.row_bytes) {
      for (int i = 0; i < pixels; ++i) vst1q_u8(reinterpret_cast<std::uint8_t*>(out + to[i] + c), rows[i]);
    } else {
      for (int i = 0; i < pixels; ++i)
        std::memcpy(out + to[i] + c, rows + i, static_cast<std::size_t>(a.row_bytes - c));
    }
  }
}

template <Dtype D, Code C>
bool code_planes_of(const CodePlanesArgs& a) {
  PlaneCodes<D, C> codes(a);
  const std::int64_t plane_bytes = a.plane * element_bytes<D>;
  const char* const x = static_cast<const char*>(a.x);
  for (std::int64_t p = 0; p < a.pixels; p += 16) {
    const int pixels = static_cast<int>(a.pixels < 16 ? a.pixels : 16);
    const std::int64_t first = p + pixels <= a.pixels ? p : a.pixels - 16;  // the last ones of them once more
    std::int64_t to[16], column = (a.column + first) % a.width,
                         at = first * a.pixel_bytes + (a.column + first) / a.width * a.gap;
    for (int i = 0; i < pixels; ++i, at += a.pixel_bytes, ++column) {
      if (column == a.width) column = 0, at += a.gap;
      to[i] = at;
    }
    if (pixels == 16) {
      put_pixels(codes, a, x + first * element_bytes<D>, plane_bytes, to, pixels);
      continue;
    }
    for (std::int64_t c = 0; c < a.row_bytes; c += 16) {
      char few[16][16 * element_bytes<D>] = {};
      CodePlanesArgs some = a;
      some.channels = a.channels - c < 16 ? a.channels - c : 16;
      some.row_bytes = a.row_bytes - c < 16 ? a.row_bytes - c : 16;
      some.bias = a.bias == nullptr ? nullptr : a.bias + c;
      some.out = static_cast<char*>(a.out) + c;
      for (std::int64_t i = 0; i < some.channels; ++i)
        std::memcpy(few[i], x + (c + i) * plane_bytes, static_cast<std::size_t>(pixels * element_bytes<D>));
      put_pixels(codes, some, few[0], static_cast<std::int64_t>(sizeof few[0]), to, pixels);
    }
  }
  return codes.finite();
}

template <Dtype D>
bool code_planes_as(const CodePlanesArgs& a) {
  switch (a.code) {
    case Code::u8_b1: return code_planes_of<D, Code::u8_b1>(a);
    case Code::u8_s4: return code_planes_of<D, Code::u8_s4>(a);
    default: return code_planes_of<D, Code::s8>(a);
  }
}

}  // namespace

bool encode(const EncodeArgs& a) {
  switch (a.dtype) {
    case Dtype::bf16: return encode_dtype<Dtype::bf16>(a);
    case Dtype::f16: return encode_dtype<Dtype::f16>(a);
    case Dtype::s8: return encode_dtype<Dtype::s8>(a);
    default: return encode_dtype<Dtype::f32>(a);
  }
}

bool code_planes(const CodePlanesArgs& a) {
  switch (a.dtype) {
    case Dtype::bf16: return code_planes_as<Dtype::bf16>(a);
    case Dtype::f16: return code_planes_as<Dtype::f16>(a);
    case Dtype::s8: return code_planes_as<Dtype::s8>(a);
    default: return code_planes_as<Dtype::f32>(a);
  }
}

bool sign_planes(const SignPlanesArgs& a) {
  switch (a.dtype) {
    case Dtype::bf16: return sign_planes_as<Dtype::bf16>(a);
    case Dtype::f16: return sign_planes_as<Dtype::f16>(a);
    case Dtype::s8: return sign_planes_as<Dtype::s8>(a);
    default: return sign_planes_as<Dtype::f32>(a);
  }
}

void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(codes);
  for (; k >= 64; k -= 64, from += 64, packed += 32)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const uint8x16_t a = vld1q_u8(from + 32 * half), b = vld1q_u8(from + 32 * half + 16);
      vst1q_u8(packed + 16 * half, vsliq_n_u8(vuzp2q_u8(a, b), vuzp1q_u8(a, b), 4));
    }
  portable::pack_int4(reinterpret_cast<const std::int8_t*>(from), k, packed);
}

}  // namespace bie::kernels::cpu::neon
