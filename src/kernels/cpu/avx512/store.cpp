#include "kernels/cpu/avx512/store.h"

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
void store_as(const StoreArgs& a) {
  const __m512 scale = _mm512_set1_ps(a.scale);
  for (std::int64_t i = 0; i < a.count; i += 16) {
    const std::int64_t left = a.count - i;
    const __mmask16 mask = left >= 16 ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
    const __m512i acc = _mm512_maskz_loadu_epi32(mask, a.acc + i);
    if constexpr (D == Dtype::s32) {
      _mm512_mask_storeu_epi32(static_cast<std::int32_t*>(a.out) + i, mask, acc);
      continue;
    }
    const __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), scale);
    if constexpr (D == Dtype::f32)
      _mm512_mask_storeu_ps(static_cast<float*>(a.out) + i, mask, y);
    else if constexpr (D == Dtype::bf16)
      _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(a.out) + i, mask, to_bf16(y));
    else if constexpr (D == Dtype::f16)
      _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(a.out) + i, mask,
                               _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
}

}  // namespace

void store(const StoreArgs& a) {
  switch (a.dtype) {
    case Dtype::bf16: return store_as<Dtype::bf16>(a);
    case Dtype::f16: return store_as<Dtype::f16>(a);
    case Dtype::s32: return store_as<Dtype::s32>(a);
    default: return store_as<Dtype::f32>(a);
  }
}

}  // namespace bie::kernels::cpu::avx512
