// Activations to signs: bits of words, or bytes. Signs are read off the bits of floats, in which no -0 may be left:
// adding +0 sees to that.
#include "kernels/cpu/neon/activations.h"
#include "kernels/cpu/with_dtype.h"

namespace bie::kernels::cpu::neon {
namespace {

/// The sign and seven bits of the exponent of sixteen floats.
BIE_INLINE uint8x16_t top_bytes(const Floats& f) {
  const auto halves = [&f](int i) {
    return vuzp2q_u16(vreinterpretq_u16_f32(f.v[i]), vreinterpretq_u16_f32(f.v[i + 1]));
  };
  return vuzp2q_u8(vreinterpretq_u8_u16(halves(0)), vreinterpretq_u8_u16(halves(2)));
}

/// From 2^127 on, NaN and infinity included, the seven bits are all ones.
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

template <Dtype D, Code C>
bool encode_signs_as(const EncodeArgs& a) {
  if constexpr (!is_code<D>)
    if (a.bias != nullptr && a.bias_step != 0) return rows<sign_row<D, C, Added::one_each>, false>(a);
  return rows<sign_row<D, C, Added::one>, is_code<D>>(a);
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

}  // namespace

bool encode_signs(const EncodeArgs& a) {
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) {
    return a.code == Code::bits ? encode_signs_as<dtype.value, Code::bits>(a)
                                : encode_signs_as<dtype.value, Code::u8_b1>(a);
  });
}

bool sign_planes(const SignPlanesArgs& a) {
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) { return sign_planes_as<dtype.value>(a); });
}

}  // namespace bie::kernels::cpu::neon
