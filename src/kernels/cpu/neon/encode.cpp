// Activations to codes.
#include "kernels/cpu/neon/activations.h"
#include "kernels/cpu/with_dtype.h"

namespace bie::kernels::cpu::neon {
namespace {

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
    case Code::s8: return encode_codes<D, Code::s8>(a);
    case Code::u8_s4: return encode_codes<D, Code::u8_s4>(a);
    default: return portable::encode(a);
  }
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
  float32x4_t odd_ = vdupq_n_f32(0);  // signs only: NaN once NaN or infinity was seen
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
  if (a.code == Code::bits || a.code == Code::u8_b1) return encode_signs(a);
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) { return encode_dtype<dtype.value>(a); });
}

bool code_planes(const CodePlanesArgs& a) {
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) { return code_planes_as<dtype.value>(a); });
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
