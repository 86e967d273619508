// Floats to codes, 64 at a time. Private to this folder: everything sits in an unnamed namespace.
#pragma once

#include <immintrin.h>

namespace bie::kernels::cpu::avx512 {
namespace {

/// clamp(rint(x / step), lo, hi) of float32 division. A product with 1 / step differs from the quotient by less than
/// 3 * 2^-24 of it, that is by less than 2^-14 below 2^8, and beyond both are clamped: only where it is that near to a
/// half do the divisions run. So they do where it is no int32 or no number, and for all x where the reciprocal of the
/// step is no normal number.
struct Quantiser {
  __m512 step, reciprocal;
  __m512i lo, hi;  ///< bytes

  template <class Args>
  explicit Quantiser(const Args& a)
      : step(_mm512_set1_ps(a.step)),
        reciprocal(_mm512_set1_ps(a.step > 0x1p-100f && a.step < 0x1p100f ? 1.0f / a.step : __builtin_nanf(""))),
        lo(_mm512_set1_epi8(static_cast<char>(a.lo))),
        hi(_mm512_set1_epi8(static_cast<char>(a.hi))) {}

  /// Integers that become the codes as bytes that saturate and are `clamped`. `odd` becomes NaN where an x is NaN or
  /// infinite.
  [[gnu::always_inline]] void codes(const __m512 (&x)[4], __m512i (&q)[4], __m512& odd) const {
    __m512i off[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512 quotient = _mm512_mul_ps(x[v], reciprocal);
      q[v] = _mm512_cvtps_epi32(quotient);  // the least int32 where it is none
      off[v] = _mm512_castps_si512(_mm512_abs_ps(_mm512_sub_ps(quotient, _mm512_cvtepi32_ps(q[v]))));
    }
    const __m512i most = _mm512_max_epu32(_mm512_max_epu32(off[0], off[1]), _mm512_max_epu32(off[2], off[3]));
    const __m512i near_half = _mm512_castps_si512(_mm512_set1_ps(0.5f - 0x1p-14f));
    if (_mm512_cmpge_epu32_mask(most, near_half) != 0) divide(x, q, odd);
  }
  __m512i clamped(__m512i bytes) const { return _mm512_min_epi8(_mm512_max_epi8(bytes, lo), hi); }

 private:
  void divide(const __m512 (&x)[4], __m512i (&q)[4], __m512& odd) const {
    for (int v = 0; v < 4; ++v) {
      odd = _mm512_fmadd_ps(x[v], _mm512_setzero_ps(), odd);
      const __m512 quotient = _mm512_div_ps(x[v], step);
      const __m512 least = _mm512_set1_ps(-0x1p30f), most = _mm512_set1_ps(0x1p30f);
      q[v] = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(quotient, least), most));
    }
  }
};

/// 64 integers as bytes that saturate.
__m512i bytes_of(const __m512i (&q)[4]) {
  const __m512i pairs =
      _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));  // four by four, interleaved
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, pairs);
}

}  // namespace
}  // namespace bie::kernels::cpu::avx512
