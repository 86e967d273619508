#include "kernels/cpu/tile.h"
#include "kernels/cpu/with_dtype.h"

#include <immintrin.h>

namespace bie::kernels::cpu::avx512 {
namespace {

/// Round to nearest even; NaN becomes 0x7fc0.
__m256i to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc0)));
}

template <Dtype D>
constexpr std::int64_t element_bytes = D == Dtype::f32 || D == Dtype::s32 ? 4 : 2;

template <Dtype D>
void store16(__m512i acc, __m512 scale, __mmask16 mask, void* out) {
  if constexpr (D == Dtype::s32) {
    _mm512_mask_storeu_epi32(out, mask, acc);
    return;
  }
  const __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), scale);
  if constexpr (D == Dtype::f32)
    _mm512_mask_storeu_ps(out, mask, y);
  else if constexpr (D == Dtype::bf16)
    _mm256_mask_storeu_epi16(out, mask, to_bf16(y));
  else if constexpr (D == Dtype::f16)
    _mm256_mask_storeu_epi16(out, mask, _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

__mmask16 first_lanes(std::int64_t count) { return count >= 16 ? __mmask16(0xffff) : __mmask16((1u << count) - 1); }

template <Dtype D>
void store_as(const StoreArgs& a) {
  const __m512 scale = _mm512_set1_ps(a.scale);
  for (std::int64_t i = 0; i < a.count; i += 16) {
    const __mmask16 mask = first_lanes(a.count - i);
    store16<D>(_mm512_maskz_loadu_epi32(mask, a.acc + i), scale, mask,
               static_cast<char*>(a.out) + i * element_bytes<D>);
  }
}

/// Rows to columns.
void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // within lanes: lane l of t[i + j] is column 4l + j of rows i to i + 3
    const __m512i low01 = _mm512_unpacklo_epi32(r[i], r[i + 1]), high01 = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), high23 = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(low01, low23);
    t[i + 1] = _mm512_unpackhi_epi64(low01, low23);
    t[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    t[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {  // lanes l of the four t[4i + j] are column 4l + j
    const __m512i a = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x88), b = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xdd);
    r[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

template <Dtype D>
void store_planes_as(const StorePlanesArgs& a) {
  const __m512 scale = _mm512_set1_ps(a.scale);
  for (std::int64_t c = 0; c < a.columns; c += 16)
    for (std::int64_t p = 0; p < a.pixels; p += 16) {
      __m512i block[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) block[i] = _mm512_loadu_si512(a.acc + (p + i) * a.acc_stride + c);
      transpose(block);
      const __mmask16 mask = first_lanes(a.pixels - p);
      char* out = static_cast<char*>(a.out) + (c * a.plane + p) * element_bytes<D>;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i, out += a.plane * element_bytes<D>)
        if (i < a.columns - c) store16<D>(block[i], scale, mask, out);
    }
}

}  // namespace

void store(const StoreArgs& a) {
  return with_dtype<Dtype::s32>(a.dtype, [&a](auto dtype) { return store_as<dtype.value>(a); });
}

void store_planes(const StorePlanesArgs& a) {
  return with_dtype<Dtype::s32>(a.dtype, [&a](auto dtype) { return store_planes_as<dtype.value>(a); });
}

}  // namespace bie::kernels::cpu::avx512
