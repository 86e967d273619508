// Activations to codes, sixteen at a time.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

constexpr int nan_or_infinity = 0x01 | 0x08 | 0x10 | 0x80;  // fpclass bits: QNaN, +inf, -inf, SNaN

template <Dtype D>
__m512 load(const void* x, std::int64_t i, __mmask16 mask) {
  if constexpr (D == Dtype::f32) {
    return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(x) + i);
  } else if constexpr (D == Dtype::bf16) {
    const __m256i half = _mm256_maskz_loadu_epi16(mask, static_cast<const std::uint16_t*>(x) + i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  } else if constexpr (D == Dtype::f16) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, static_cast<const std::uint16_t*>(x) + i));
  } else {
    const __m128i byte = _mm_maskz_loadu_epi8(mask, static_cast<const std::int8_t*>(x) + i);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(byte));
  }
}

template <Code C>
void store(__m512i q, std::int64_t i, __mmask16 mask, void* out) {
  if constexpr (C == Code::s16_s8) {
    _mm256_mask_storeu_epi16(static_cast<std::int16_t*>(out) + i, mask, _mm512_cvtepi32_epi16(q));
  } else {
    const __m512i offset = _mm512_set1_epi32(C == Code::u8_s8 ? 128 : C == Code::u8_s4 ? 8 : 0);
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(q, offset));
    _mm_mask_storeu_epi8(static_cast<std::uint8_t*>(out) + i, mask, bytes);
  }
}

template <Dtype D, Code C>
bool encode_as(const EncodeArgs& a) {
  const __m512 step = _mm512_set1_ps(a.step);
  const __m512 lo = _mm512_set1_ps(static_cast<float>(a.lo));
  const __m512 hi = _mm512_set1_ps(static_cast<float>(a.hi));
  const bool whole_run = a.bias != nullptr && a.bias_step == 0;
  const __m512 run_bias = _mm512_set1_ps(whole_run ? *a.bias : 0.0f);
  const float* element_bias = whole_run ? nullptr : a.bias;
  __mmask16 bad = 0;
  std::uint16_t* halfwords = static_cast<std::uint16_t*>(a.out);
  for (std::int64_t i = 0; i < a.count; i += 16) {
    const std::int64_t left = a.count - i;
    const __mmask16 mask = left >= 16 ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
    __m512 x = load<D>(a.x, i, mask);
    if constexpr (D != Dtype::s8) {
      if (element_bias != nullptr)
        x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, element_bias + i));
      else if (whole_run)
        x = _mm512_add_ps(x, run_bias);
      bad |= _mm512_mask_fpclass_ps_mask(mask, x, nan_or_infinity);
    }
    if constexpr (C == Code::bits) {
      halfwords[i / 16] = _mm512_mask_cmp_ps_mask(mask, x, _mm512_setzero_ps(), _CMP_GE_OQ);
    } else if constexpr (D == Dtype::s8) {
      store<C>(_mm512_cvtps_epi32(x), i, mask, a.out);
    } else {
      const __m512 rounded =
          _mm512_roundscale_ps(_mm512_div_ps(x, step), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      store<C>(_mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(rounded, lo), hi)), i, mask, a.out);
    }
  }
  if constexpr (C == Code::bits)
    if (((a.count + 15) / 16) % 2 != 0) halfwords[(a.count + 15) / 16] = 0;
  return bad == 0;
}

template <Dtype D>
bool encode_dtype(const EncodeArgs& a) {
  switch (a.code) {
    case Code::bits: return encode_as<D, Code::bits>(a);
    case Code::u8_s8: return encode_as<D, Code::u8_s8>(a);
    case Code::s16_s8: return encode_as<D, Code::s16_s8>(a);
    case Code::u8_s4: return encode_as<D, Code::u8_s4>(a);
    case Code::s8: return encode_as<D, Code::s8>(a);
  }
  return false;
}

/// 64 pixels at a time, so that a channel is read in whole cache lines. The sign bit of a sum is that of v >= 0 once no
/// -0 is left in it, which adding +0 sees to.
template <Dtype D>
bool sign_planes_as(const SignPlanesArgs& a) {
  constexpr std::int64_t bytes = D == Dtype::f32 ? 4 : D == Dtype::s8 ? 1 : 2;
  constexpr int vectors = 4;
  const __m512 zero = _mm512_setzero_ps();
  __m512 odd = zero;  // sum of x * 0: NaN once a NaN or infinity was seen
  for (std::int64_t first = 0; first < a.channels; first += 32) {
    const int channels = static_cast<int>(a.channels - first < 32 ? a.channels - first : 32);
    std::uint32_t* out = a.out + first / 32 * a.word_stride;
    for (std::int64_t p = 0; p < a.pixels; p += 16 * vectors) {
      __mmask16 mask[vectors];
      __m512i word[vectors];
      for (int v = 0; v < vectors; ++v) {
        const std::int64_t left = a.pixels - p - 16 * v;
        mask[v] = left >= 16 ? __mmask16(0xffff) : left <= 0 ? __mmask16(0) : __mmask16((1u << left) - 1);
        word[v] = _mm512_setzero_si512();
      }
      const char* x = static_cast<const char*>(a.x) + (first * a.plane + p) * bytes;
      for (int c = 0; c < channels; ++c, x += a.plane * bytes) {
        const __m512i bit = _mm512_set1_epi32(static_cast<int>(1u << c));
        const __m512 bias =
            D == Dtype::s8 || a.bias == nullptr ? zero : _mm512_add_ps(_mm512_set1_ps(a.bias[first + c]), zero);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          const __m512 xs = _mm512_add_ps(load<D>(x, 16 * v, mask[v]), bias);
          odd = _mm512_fmadd_ps(xs, zero, odd);
          const __m512i negative = _mm512_srai_epi32(_mm512_castps_si512(xs), 31);
          word[v] = _mm512_ternarylogic_epi32(word[v], negative, bit, 0xf2);  // word | (bit & ~negative)
        }
      }
      for (int v = 0; v < vectors; ++v) _mm512_mask_storeu_epi32(out + p + 16 * v, mask[v], word[v]);
    }
  }
  return _mm512_cmp_ps_mask(odd, odd, _CMP_UNORD_Q) == 0;
}

}  // namespace

bool sign_planes(const SignPlanesArgs& a) {
  switch (a.dtype) {
    case Dtype::bf16: return sign_planes_as<Dtype::bf16>(a);
    case Dtype::f16: return sign_planes_as<Dtype::f16>(a);
    case Dtype::s8: return sign_planes_as<Dtype::s8>(a);
    default: return sign_planes_as<Dtype::f32>(a);
  }
}

bool encode(const EncodeArgs& a) {
  switch (a.dtype) {
    case Dtype::bf16: return encode_dtype<Dtype::bf16>(a);
    case Dtype::f16: return encode_dtype<Dtype::f16>(a);
    case Dtype::s8: return encode_dtype<Dtype::s8>(a);
    default: return encode_dtype<Dtype::f32>(a);
  }
}

void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed) {
  std::int64_t i = 0;
  for (; i < k; i += 64) {
    const std::int64_t left = k - i;
    const __mmask64 mask = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i pairs = _mm512_maskz_loadu_epi8(mask, codes + i);
    const __m512i high = _mm512_and_si512(_mm512_slli_epi16(pairs, 4), _mm512_set1_epi16(0xf0));
    const __m512i low = _mm512_and_si512(_mm512_srli_epi16(pairs, 8), _mm512_set1_epi16(0x0f));
    const std::int64_t bytes = left >= 64 ? 32 : (left + 1) / 2;
    const __mmask32 out_mask = bytes == 32 ? ~__mmask32{0} : (__mmask32{1} << bytes) - 1;
    _mm256_mask_storeu_epi8(packed + i / 2, out_mask, _mm512_cvtepi16_epi8(_mm512_or_si512(high, low)));
  }
}

}  // namespace bie::kernels::cpu::avx512
