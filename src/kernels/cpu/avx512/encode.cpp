// Activations to codes, 64 at a time and a tail of sixteens.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/avx512/quantiser.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/with_dtype.h"

namespace bie::kernels::cpu::avx512 {
namespace {

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

/// Every other element from i on, as many as `mask` has first lanes.
template <Dtype D>
__m512 load_even(const void* x, std::int64_t i, __mmask16 mask) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const std::uint32_t pairs = ~0u >> (33 - 2 * __builtin_popcount(mask));  // up to the last one
  return _mm512_permutex2var_ps(load<D>(x, i, static_cast<__mmask16>(pairs)), even,
                                load<D>(x, i + 16, static_cast<__mmask16>(pairs >> 16)));
}

constexpr int offset_of(Code code) {
  return code == Code::u8_s8 ? 128 : code == Code::u8_s4 ? 8 : code == Code::u8_b1 ? 1 : 0;
}

/// 1 where x >= 0, else -1.
__m512i signs_of(__m512 x) {
  return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ), _mm512_set1_epi32(-1),
                                 _mm512_set1_epi32(1));
}

template <Code C>
void store(__m512i q, std::int64_t i, __mmask16 mask, void* out) {
  if constexpr (C == Code::s16_s8) {
    _mm256_mask_storeu_epi16(static_cast<std::int16_t*>(out) + i, mask, _mm512_cvtepi32_epi16(q));
  } else {
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(q, _mm512_set1_epi32(offset_of(C))));
    _mm_mask_storeu_epi8(static_cast<std::uint8_t*>(out) + i, mask, bytes);
  }
}

/// The biases of a run: one per element, or the same for all.
struct Bias {
  const float* elements;
  __m512 same;

  explicit Bias(const EncodeArgs& a)
      : elements(a.bias_step == 0 ? nullptr : a.bias),
        same(_mm512_set1_ps(a.bias != nullptr && a.bias_step == 0 ? *a.bias : 0.0f)) {}
  __m512 at(std::int64_t i, __mmask16 mask) const {
    return elements == nullptr ? same : _mm512_maskz_loadu_ps(mask, elements + i);
  }
};

bool is_nan(__m512 x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0; }

/// The elements done, a multiple of 64. `odd` becomes NaN where one of them is NaN or infinite.
template <Dtype D, Code C>
std::int64_t encode_blocks(const EncodeArgs& a, const Bias& bias, const Quantiser& quantiser, __m512& odd) {
  constexpr __mmask16 all = 0xffff;
  const __m512 zero = _mm512_setzero_ps();
  __m512 sums[4] = {zero, zero, zero, zero};
  std::int64_t i = 0;
  for (; i + 64 <= a.count; i += 64) {
    if constexpr (D == Dtype::s8 && C != Code::bits && C != Code::u8_b1) {  // bytes to bytes
      const __m512i codes = _mm512_loadu_si512(static_cast<const char*>(a.x) + i);
      _mm512_storeu_si512(static_cast<char*>(a.out) + i,
                          _mm512_add_epi8(codes, _mm512_set1_epi8(static_cast<char>(offset_of(C)))));
      continue;
    }
    __m512 x[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      x[v] = load<D>(a.x, i + 16 * v, all);
      if constexpr (D == Dtype::s8) continue;
      x[v] = _mm512_add_ps(x[v], bias.at(i + 16 * v, all));
    }
    if constexpr (C == Code::bits || C == Code::u8_b1) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[v] = _mm512_fmadd_ps(x[v], _mm512_setzero_ps(), sums[v]);
      std::uint64_t bits = 0;
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v)
        bits |= static_cast<std::uint64_t>(_mm512_cmp_ps_mask(x[v], _mm512_setzero_ps(), _CMP_GE_OQ)) << (16 * v);
      if constexpr (C == Code::bits)
        __builtin_memcpy(static_cast<char*>(a.out) + i / 8, &bits, sizeof bits);
      else
        _mm512_storeu_si512(static_cast<char*>(a.out) + i, _mm512_maskz_mov_epi8(bits, _mm512_set1_epi8(2)));
    } else {
      __m512i q[4];
      quantiser.codes(x, q, odd);
      _mm512_storeu_si512(
          static_cast<char*>(a.out) + i,
          _mm512_add_epi8(quantiser.clamped(bytes_of(q)), _mm512_set1_epi8(static_cast<char>(offset_of(C)))));
    }
  }
  odd = _mm512_add_ps(odd, _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])));
  return i;
}

/// Up to 64 elements from i on.
template <Dtype D, Code C>
void encode_rest(const EncodeArgs& a, std::int64_t i, const Bias& bias, const Quantiser& quantiser, __m512& odd) {
  const __mmask64 mask = ~__mmask64{0} >> (64 - (a.count - i));
  __m512 x[4];
  __m512i q[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __mmask16 part = static_cast<__mmask16>(mask >> (16 * v));
    x[v] = _mm512_maskz_add_ps(part, load<D>(a.x, i + 16 * v, part), bias.at(i + 16 * v, part));
  }
  quantiser.codes(x, q, odd);
  _mm512_mask_storeu_epi8(
      static_cast<char*>(a.out) + i, mask,
      _mm512_add_epi8(quantiser.clamped(bytes_of(q)), _mm512_set1_epi8(static_cast<char>(offset_of(C)))));
}

/// One row; `odd` as above.
template <Dtype D, Code C>
void encode_row(const EncodeArgs& a, const Bias& bias, const Quantiser& quantiser, __m512& odd) {
  std::int64_t i = 0;
  if constexpr (C != Code::s16_s8) i = encode_blocks<D, C>(a, bias, quantiser, odd);
  if constexpr (D != Dtype::s8 && (C == Code::u8_s8 || C == Code::u8_s4 || C == Code::s8)) {
    if (i < a.count) encode_rest<D, C>(a, i, bias, quantiser, odd);
    i = a.count;
  }
  std::uint16_t* halfwords = static_cast<std::uint16_t*>(a.out);
  for (; i < a.count; i += 16) {
    const std::int64_t left = a.count - i;
    const __mmask16 mask = left >= 16 ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
    __m512 x = load<D>(a.x, i, mask);
    if constexpr (D != Dtype::s8) {
      x = _mm512_maskz_add_ps(mask, x, bias.at(i, mask));
      odd = _mm512_fmadd_ps(x, _mm512_setzero_ps(), odd);
    }
    if constexpr (C == Code::bits) {
      halfwords[i / 16] = _mm512_mask_cmp_ps_mask(mask, x, _mm512_setzero_ps(), _CMP_GE_OQ);
    } else if constexpr (C == Code::u8_b1) {
      store<C>(signs_of(x), i, mask, a.out);
    } else if constexpr (D == Dtype::s8) {
      store<C>(_mm512_cvtps_epi32(x), i, mask, a.out);
    } else {
      const __m512 alone[4] = {x, _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
      __m512i q[4];
      quantiser.codes(alone, q, odd);
      store<C>(_mm512_cvtepi8_epi32(_mm512_castsi512_si128(quantiser.clamped(bytes_of(q)))), i, mask, a.out);
    }
  }
  const std::int64_t written = C == Code::bits ? (a.count + 15) / 16 * 2 : C == Code::s16_s8 ? 2 * a.count : a.count;
  for (std::int64_t byte = written; byte < a.row_bytes; ++byte) static_cast<char*>(a.out)[byte] = 0;
}

template <Dtype D, Code C>
bool encode_as(EncodeArgs a) {
  const Quantiser quantiser(a);
  const Bias bias(a);
  __m512 odd = _mm512_setzero_ps();  // sum of x * 0: NaN once a NaN or infinity was seen
  for (std::int64_t row = 0; row < a.rows; ++row) {
    encode_row<D, C>(a, bias, quantiser, odd);
    a.x = static_cast<const char*>(a.x) + a.x_stride;
    a.out = static_cast<char*>(a.out) + a.out_stride;
  }
  return !is_nan(odd);
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
  return !is_nan(odd);
}

template <int lane>
void store_lane(__m512i lanes, void* to) {
  _mm_storeu_si128(static_cast<__m128i*>(to), _mm512_extracti32x4_epi32(lanes, lane));
}

/// Integers as bytes that saturate, byte i of a lane from q[i].
__m512i lanes_of(const __m512i (&q)[4]) {
  const __m512i fours = _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(fours, order);
}

template <Dtype D>
class PlaneEncoder {
 public:
  explicit PlaneEncoder(const CodePlanesArgs& args) : a(args), quantiser(args), offset(offset_of(args.code)) {}

  /// Units of the pixels from element p of a plane on, `step` apart, and of up to four channels.
  template <bool full, int step = 1>
  __m512i units(std::int64_t p, std::int64_t first, __mmask16 mask) {
    if (!full && first >= a.channels) return _mm512_setzero_si512();
    __m512 x[4];
    __m512i codes[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      x[i] = _mm512_setzero_ps();
      if (!full && first + i >= a.channels) continue;
      const std::int64_t at = (first + i) * a.plane + p;
      x[i] = step == 1 ? load<D>(a.x, at, mask) : load_even<D>(a.x, at, mask);
      if constexpr (D == Dtype::s8) continue;
      if (a.bias != nullptr) x[i] = _mm512_maskz_add_ps(mask, x[i], _mm512_set1_ps(a.bias[first + i]));
    }
    if (a.code == Code::u8_b1) {
      for (int i = 0; i < 4; ++i) {
        odd = _mm512_fmadd_ps(x[i], _mm512_setzero_ps(), odd);
        codes[i] = signs_of(x[i]);
      }
    } else if constexpr (D == Dtype::s8) {
      for (int i = 0; i < 4; ++i) codes[i] = _mm512_cvtps_epi32(x[i]);
    } else {
      quantiser.codes(x, codes, odd);
    }
    __m512i unit = lanes_of(codes);
    if (a.code != Code::u8_b1 && D != Dtype::s8) unit = quantiser.clamped(unit);
    unit = _mm512_add_epi8(unit, _mm512_set1_epi8(static_cast<char>(offset)));
    if (!full && a.channels - first < 4)
      unit = _mm512_and_si512(unit, _mm512_set1_epi32((1 << 8 * (a.channels - first)) - 1));
    return unit;
  }
  bool finite() const { return !is_nan(odd); }

 private:
  const CodePlanesArgs& a;
  const Quantiser quantiser;
  const int offset;
  __m512 odd = _mm512_setzero_ps();  // sum of x * 0: NaN once a NaN or infinity was seen
};

/// Pixels of one unit, of every other element of rows.
template <Dtype D>
bool even_unit_planes_as(const CodePlanesArgs& a) {
  constexpr int together = 16;
  PlaneEncoder<D> encoder(a);
  char* out = static_cast<char*>(a.out);
  for (std::int64_t row = 0; row * a.width < a.pixels; ++row, out += a.width * 4 + a.gap)
    for (std::int64_t column = 0; column < a.width; column += together) {
      const std::int64_t left = a.width - column;
      const __mmask16 mask = left >= together ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
      const std::int64_t at = row * a.row_step + 2 * column;
      _mm512_mask_storeu_epi32(out + 4 * column, mask, encoder.template units<false, 2>(at, 0, mask));
    }
  return encoder.finite();
}

/// Pixels of one unit.
template <Dtype D>
bool unit_planes_as(const CodePlanesArgs& a) {
  constexpr int together = 16;
  PlaneEncoder<D> encoder(a);
  char* out = static_cast<char*>(a.out);
  std::int64_t column = a.column;
  for (std::int64_t p = 0; p < a.pixels; p += together) {
    const int pixels = static_cast<int>(a.pixels - p < together ? a.pixels - p : together);
    const __mmask16 mask = static_cast<__mmask16>(0xffff >> (together - pixels));
    const __m512i units =
        a.channels >= 4 ? encoder.template units<true>(p, 0, mask) : encoder.template units<false>(p, 0, mask);
    for (int from = 0, to = 0; from < pixels; from = to) {  // parts of one row
      to = a.width - column < pixels - from ? from + static_cast<int>(a.width - column) : pixels;
      _mm512_mask_storeu_epi32(out, static_cast<__mmask16>((0xffff >> (together - to)) & (0xffff << from)), units);
      column += to - from;
      if (column < a.width) continue;
      column = 0;
      out += a.gap;
    }
    out += 4 * together;
  }
  return encoder.finite();
}

/// Sixteen pixels of up to sixteen channels: four channels become the bytes of one unit, and units change places so
/// that a pixel's bytes lie side by side.
template <Dtype D>
bool code_planes_as(const CodePlanesArgs& a) {
  if (a.pixel_step == 2) return even_unit_planes_as<D>(a);
  if (a.row_bytes == 4 && a.pixel_bytes == 4) return unit_planes_as<D>(a);
  constexpr int together = 16;
  PlaneEncoder<D> encoder(a);
  char* out = static_cast<char*>(a.out);
  std::int64_t column = a.column;
  for (std::int64_t p = 0; p < a.pixels; p += together) {
    const int pixels = static_cast<int>(a.pixels - p < together ? a.pixels - p : together);
    const __mmask16 mask = static_cast<__mmask16>(0xffff >> (together - pixels));
    std::int64_t to[together], end = 0;  // where pixels go, from `out` on
    for (int i = 0; i < pixels; ++i) {
      to[i] = end;
      end += a.pixel_bytes;
      if (++column < a.width) continue;
      column = 0;
      end += a.gap;
    }
    for (std::int64_t c = 0; c < a.row_bytes; c += together) {
      __m512i unit[4];
      if (c + together <= a.channels) {
#pragma GCC unroll 4
        for (int u = 0; u < 4; ++u) unit[u] = encoder.template units<true>(p, c + 4 * u, mask);
      } else {
        for (int u = 0; u < 4; ++u) unit[u] = encoder.template units<false>(p, c + 4 * u, mask);
      }
      const __m512i low01 = _mm512_unpacklo_epi32(unit[0], unit[1]), high01 = _mm512_unpackhi_epi32(unit[0], unit[1]);
      const __m512i low23 = _mm512_unpacklo_epi32(unit[2], unit[3]), high23 = _mm512_unpackhi_epi32(unit[2], unit[3]);
      const __m512i rows[4] = {_mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
                               _mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23)};
      if (pixels == together && c + together <= a.row_bytes) {  // pixel 4l + i is lane l of rows[i]
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          store_lane<0>(rows[i], out + c + to[i]);
          store_lane<1>(rows[i], out + c + to[4 + i]);
          store_lane<2>(rows[i], out + c + to[8 + i]);
          store_lane<3>(rows[i], out + c + to[12 + i]);
        }
        continue;
      }
      alignas(64) __m512i kept[4] = {rows[0], rows[1], rows[2], rows[3]};
      const std::int64_t left = (a.row_bytes - c) / 4;
      const __mmask8 words = static_cast<__mmask8>(left >= 4 ? 15 : (1 << left) - 1);
      for (int i = 0; i < pixels; ++i)
        _mm_mask_storeu_epi32(out + c + to[i], words,
                              _mm_load_si128(reinterpret_cast<const __m128i*>(kept + i % 4) + i / 4));
    }
    out += end;
  }
  return encoder.finite();
}

}  // namespace

bool code_planes(const CodePlanesArgs& a) {
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) { return code_planes_as<dtype.value>(a); });
}

bool sign_planes(const SignPlanesArgs& a) {
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) { return sign_planes_as<dtype.value>(a); });
}

bool encode(const EncodeArgs& a) {
  return with_dtype<Dtype::s8>(a.dtype, [&a](auto dtype) { return encode_dtype<dtype.value>(a); });
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
