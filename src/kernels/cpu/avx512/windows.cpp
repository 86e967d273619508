// Windows of sixteen neighbouring outputs side by side, and units of codes that lie apart.
#include <immintrin.h>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

constexpr int lanes = 16;

/// Sixteen pixels of all taps and units; words(from) are those of one.
template <class Words>
[[gnu::always_inline]] inline void each_unit(const WindowsArgs& a, const std::int32_t first, std::uint32_t* out,
                                             const Words& words) {
  for (std::int64_t t = 0; t < a.tap_count; ++t) {
    const std::uint32_t* from = a.planes + a.taps[t] + first;
    for (std::int64_t u = 0; u < a.units; ++u, from += a.plane, out += pixel_lanes)
      _mm512_store_si512(out, words(from));
  }
}

/// Where pixels lie within two vectors of one another a permutation picks them.
void gather16(const WindowsArgs& a, const std::int32_t* offsets, int count, std::uint32_t* out) {
  const __mmask16 used = count >= lanes ? __mmask16(0xffff) : __mmask16((1u << count) - 1);
  const __m512i at = _mm512_maskz_loadu_epi32(used, offsets);
  const std::int32_t first = offsets[0];
  const __m512i apart = _mm512_maskz_sub_epi32(used, at, _mm512_set1_epi32(first));
  const __m512i in_order = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const int last = _mm512_reduce_max_epi32(apart);
  if (_mm512_mask_cmpneq_epi32_mask(used, apart, in_order) == 0)
    each_unit(a, first, out, [](const std::uint32_t* from) { return _mm512_loadu_si512(from); });
  else if (last < lanes)
    each_unit(a, first, out,
              [=](const std::uint32_t* from) { return _mm512_permutexvar_epi32(apart, _mm512_loadu_si512(from)); });
  else if (last < 2 * lanes)
    each_unit(a, first, out, [=](const std::uint32_t* from) {
      return _mm512_permutex2var_epi32(_mm512_loadu_si512(from), apart, _mm512_loadu_si512(from + lanes));
    });
  else
    each_unit(a, first, out, [=](const std::uint32_t* from) { return _mm512_i32gather_epi32(apart, from, 4); });
}

}  // namespace

void gather_windows(const WindowsArgs& a) {
  for (int p = 0; p < a.count; p += lanes) gather16(a, a.pixels + p, a.count - p, a.out + p);
}

void join_bytes(const JoinBytesArgs& a) {
  for (std::int64_t u = 0; u < a.units; ++u)
    for (std::int64_t p = 0; p < a.count; p += lanes) {
      __m512i byte[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        byte[i] = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a.from[4 * u + i] + p)));
      const __m512i low = _mm512_or_si512(byte[0], _mm512_slli_epi32(byte[1], 8));
      const __m512i high = _mm512_or_si512(byte[2], _mm512_slli_epi32(byte[3], 8));
      const __mmask16 used = a.count - p >= lanes ? __mmask16(0xffff) : __mmask16((1u << (a.count - p)) - 1);
      _mm512_mask_storeu_epi32(a.out + u * a.plane + p, used, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

}  // namespace bie::kernels::cpu::avx512
