// Floats to codes, 64 at a time. Private to this folder: everything sits in an unnamed namespace.
#pragma once

#include <immintrin.h>

namespace bie::kernels::cpu::avx512 {
namespace {

/// clamp(rint(x / step), lo, hi) of float32 division. A product with 1 / step differs from the quotient by less than
/// 3 * 2^-24 of it, that is by less than 2^-14 below 2^8, and beyond both are clamped: only where it is that near to a
/// half do the divisions run. A step whose reciprocal is no normal number makes every quotient one of those.
struct Quantiser {
  __m512 step, reciprocal, lo, hi;

  template <class Args>
  explicit Quantiser(const Args& a)
      : step(_mm512_set1_ps(a.step)),
        reciprocal(_mm512_set1_ps(a.step > 0x1p-100f && a.step < 0x1p100f ? 1.0f / a.step : __builtin_nanf(""))),
        lo(_mm512_set1_ps(static_cast<float>(a.lo))),
        hi(_mm512_set1_ps(static_cast<float>(a.hi))) {}

  void codes(const __m512 (&x)[4], __m512i (&q)[4]) const {
    __m512 whole[4];
    whole_codes(x, whole);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) q[v] = _mm512_cvtps_epi32(whole[v]);
  }

  /// As floats.
  void whole_codes(const __m512 (&x)[4], __m512 (&rounded)[4]) const {
    __mmask16 near_half = 0;
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512 quotient = _mm512_mul_ps(x[v], reciprocal);
      rounded[v] = round(quotient);
      const __m512 off = _mm512_abs_ps(_mm512_sub_ps(quotient, rounded[v]));
      near_half |= _mm512_cmp_ps_mask(off, _mm512_set1_ps(0.5f - 0x1p-14f), _CMP_NLT_UQ);
    }
    if (near_half != 0)
      for (int v = 0; v < 4; ++v) rounded[v] = round(_mm512_div_ps(x[v], step));
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) rounded[v] = _mm512_min_ps(_mm512_max_ps(rounded[v], lo), hi);
  }

 private:
  static __m512 round(__m512 x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
};

/// 64 codes as bytes.
__m512i bytes_of(const __m512i (&q)[4], int offset) {
  const __m512i pairs =
      _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));  // four by four, interleaved
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_add_epi8(_mm512_permutexvar_epi32(order, pairs), _mm512_set1_epi8(static_cast<char>(offset)));
}

}  // namespace
}  // namespace bie::kernels::cpu::avx512
