// Activations to codes, eight at a time; a short tail goes through a zero-padded copy.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/tile.h"
#include "kernels/cpu/with_dtype.h"

namespace bie::kernels::cpu::avx2 {
namespace {

template <Dtype D>
constexpr std::int64_t element_bytes = D == Dtype::f32  ? 4
                                       : D == Dtype::s8 ? 1
                                                        : 2;

template <Dtype D>
__m256 load8(const char* x) {
  if constexpr (D == Dtype::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(x));
  } else if constexpr (D == Dtype::bf16) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  } else if constexpr (D == Dtype::f16) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  } else {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
}

/// Eight int32 codes to eight int16 or int8 values in the low half of the result.
__m128i narrow16(__m256i q) { return _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1)); }

template <Code C>
void store8(__m256i q, char* out) {
  if constexpr (C == Code::s16_s8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), narrow16(q));
  } else if constexpr (C == Code::s8) {
    const __m128i words = narrow16(q);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packs_epi16(words, words));
  } else {
    constexpr int offset = C == Code::u8_s8 ? 128 : C == Code::u8_s4 ? 8 : 1;
    const __m128i words = narrow16(_mm256_add_epi32(q, _mm256_set1_epi32(offset)));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(words, words));
  }
}

struct Rounding {
  __m256 step, lo, hi;
};

/// Eight codes to `out` (one byte of signs for bits); false when a value is NaN or infinite.
template <Dtype D, Code C>
bool encode8(const char* x, __m256 bias, const Rounding& rounding, char* out) {
  __m256 xs = load8<D>(x);
  bool finite = true;
  if constexpr (D != Dtype::s8) {
    xs = _mm256_add_ps(xs, bias);
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    const __m256i masked = _mm256_and_si256(_mm256_castps_si256(xs), exponent);
    finite = _mm256_testz_si256(_mm256_cmpeq_epi32(masked, exponent), _mm256_set1_epi32(-1)) != 0;
  }
  if constexpr (C == Code::bits) {
    *out = static_cast<char>(_mm256_movemask_ps(_mm256_cmp_ps(xs, _mm256_setzero_ps(), _CMP_GE_OQ)));
  } else if constexpr (C == Code::u8_b1) {
    const __m256i at_least = _mm256_castps_si256(_mm256_cmp_ps(xs, _mm256_setzero_ps(), _CMP_GE_OQ));
    store8<C>(_mm256_blendv_epi8(_mm256_set1_epi32(-1), _mm256_set1_epi32(1), at_least), out);
  } else if constexpr (D == Dtype::s8) {
    store8<C>(_mm256_cvtps_epi32(xs), out);
  } else {
    const __m256 rounded =
        _mm256_round_ps(_mm256_div_ps(xs, rounding.step), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    store8<C>(_mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(rounded, rounding.lo), rounding.hi)), out);
  }
  return finite;
}

template <Dtype D, Code C>
bool encode_row(const EncodeArgs& a) {
  constexpr std::int64_t out_bytes = C == Code::s16_s8 ? 16 : C == Code::bits ? 1 : 8;  // of eight codes
  const Rounding rounding = {_mm256_set1_ps(a.step), _mm256_set1_ps(static_cast<float>(a.lo)),
                             _mm256_set1_ps(static_cast<float>(a.hi))};
  const bool whole_run = a.bias != nullptr && a.bias_step == 0;
  const float* element_bias = whole_run ? nullptr : a.bias;
  __m256 bias = _mm256_set1_ps(whole_run ? *a.bias : -0.0f);  // x + -0 is x, signed zeros included
  const char* x = static_cast<const char*>(a.x);
  char* out = static_cast<char*>(a.out);
  bool finite = true;
  std::int64_t i = 0;
  for (; i + 8 <= a.count; i += 8) {
    if (element_bias != nullptr) bias = _mm256_loadu_ps(element_bias + i);
    finite &= encode8<D, C>(x + i * element_bytes<D>, bias, rounding, out + i / 8 * out_bytes);
  }
  if (i < a.count) {
    const std::size_t left = static_cast<std::size_t>(a.count - i);
    char tail[32] = {};
    float tail_bias[8] = {};
    char codes[16];
    std::memcpy(tail, x + i * element_bytes<D>, left * element_bytes<D>);
    if (element_bias != nullptr) {
      std::memcpy(tail_bias, element_bias + i, left * 4);
      bias = _mm256_loadu_ps(tail_bias);
    }
    finite &= encode8<D, C>(tail, bias, rounding, codes);
    if constexpr (C == Code::bits)
      out[i / 8] = static_cast<char>(codes[0] & ((1 << left) - 1));
    else
      std::memcpy(out + i / 8 * out_bytes, codes, left * (out_bytes / 8));
  }
  for (std::int64_t byte = (a.count * out_bytes + 7) / 8; byte < a.row_bytes; ++byte) out[byte] = 0;
  return finite;
}

template <Dtype D, Code C>
bool encode_as(EncodeArgs a) {
  bool finite = true;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    finite &= encode_row<D, C>(a);
    a.x = static_cast<const char*>(a.x) + a.x_stride;
    a.out = static_cast<char*>(a.out) + a.out_stride;
  }
  return finite;
}

template <Dtype D>
bool encode_dtype(const EncodeArgs& a) {
  switch (a.code) {
    case Code::bits: return encode_as<D, Code::bits>(a);
    case Code::u8_s8: return encode_as<D, Code::u8_s8>(a);
    case Code::s16_s8: return encode_as<D, Code::s16_s8>(a);
    case Code::u8_s4: return encode_as<D, Code::u8_s4>(a);
    case Code::s8: return encode_as<D, Code::s8>(a);
    case Code::u8_b1: return encode_as<D, Code::u8_b1>(a);
    default: return false;  // no x86 tile uses it
  }
}

/// Eight pixels at a time. The sign bit of a sum is that of v >= 0 once no -0 is left in it, which adding +0 sees to.
template <Dtype D>
bool sign_planes_as(const SignPlanesArgs& a) {
  const __m256 zero = _mm256_setzero_ps();
  __m256 odd = zero;  // sum of x * 0: NaN once a NaN or infinity was seen
  for (std::int64_t first = 0; first < a.channels; first += 32) {
    const int channels = static_cast<int>(a.channels - first < 32 ? a.channels - first : 32);
    std::uint32_t* out = a.out + first / 32 * a.word_stride;
    for (std::int64_t p = 0; p < a.pixels; p += 8) {
      const std::int64_t left = a.pixels - p;
      const char* x = static_cast<const char*>(a.x) + (first * a.plane + p) * element_bytes<D>;
      __m256i word = _mm256_setzero_si256();
      for (int c = 0; c < channels; ++c, x += a.plane * element_bytes<D>) {
        char tail[32] = {};
        if (left < 8) std::memcpy(tail, x, static_cast<std::size_t>(left * element_bytes<D>));
        const __m256 bias =
            D == Dtype::s8 || a.bias == nullptr ? zero : _mm256_add_ps(_mm256_set1_ps(a.bias[first + c]), zero);
        const __m256 xs = _mm256_add_ps(load8<D>(left < 8 ? tail : x), bias);
        odd = _mm256_fmadd_ps(xs, zero, odd);
        const __m256i negative = _mm256_srai_epi32(_mm256_castps_si256(xs), 31);
        const __m256i bit = _mm256_set1_epi32(static_cast<int>(1u << c));
        word = _mm256_or_si256(word, _mm256_andnot_si256(negative, bit));
      }
      std::uint32_t words[8];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), word);
      std::memcpy(out + p, words, static_cast<std::size_t>(4 * (left < 8 ? left : 8)));
    }
  }
  return _mm256_movemask_ps(_mm256_cmp_ps(odd, odd, _CMP_UNORD_Q)) == 0;
}

}  // namespace

bool sign_planes(const SignPlanesArgs& a) {
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) { return sign_planes_as<dtype.value>(a); });
}

bool encode(const EncodeArgs& a) {
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) { return encode_dtype<dtype.value>(a); });
}

void pack_int4(const std::int8_t* codes, std::int64_t k, std::uint8_t* packed) {
  std::int64_t i = 0;
  for (; i + 32 <= k; i += 32) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
    const __m256i high = _mm256_and_si256(_mm256_slli_epi16(pairs, 4), _mm256_set1_epi16(0xf0));
    const __m256i low = _mm256_and_si256(_mm256_srli_epi16(pairs, 8), _mm256_set1_epi16(0x0f));
    const __m256i both = _mm256_or_si256(high, low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(packed + i / 2),
                     _mm_packus_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
  }
  for (; i < k; i += 2) {
    const int low = i + 1 < k ? codes[i + 1] & 15 : 0;
    packed[i / 2] = static_cast<std::uint8_t>(((codes[i] & 15) << 4) | low);
  }
}

}  // namespace bie::kernels::cpu::avx2
