// The products of attention_q8 for VNNI, which multiplies unsigned bytes with signed ones: 128 is added to each key,
// and 128 times the sum of the query is subtracted.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/attention/attention_q8.h"

namespace bie::kernels::cpu::avx512 {
namespace {

__m512i four(const void* bytes) {
  std::int32_t word;
  std::memcpy(&word, bytes, 4);
  return _mm512_set1_epi32(word);
}

void scores(const std::int8_t* q, const std::int8_t* keys, int quads, std::int32_t* sums) {
  std::int32_t all = 0;
  for (int i = 0; i < 4 * quads; ++i) all += q[i];
  __m512i sum[4];
#pragma GCC unroll 4
  for (__m512i& part : sum) part = _mm512_set1_epi32(-128 * all);
  const __m512i half = _mm512_set1_epi8(static_cast<char>(-128));
  for (int i = 0; i < quads; ++i, q += 4, keys += 4 * attention_block) {
    const __m512i by = four(q);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v)
      sum[v] = _mm512_dpbusd_epi32(sum[v], _mm512_xor_si512(_mm512_loadu_si512(keys + 64 * v), half), by);
  }
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) _mm512_storeu_si512(sums + 16 * v, sum[v]);
}

void values(const std::uint8_t* u, const std::int8_t* v, std::int64_t size, std::int32_t* sums) {
  for (std::int64_t c = 0; c < size; c += 16) {
    __m512i even = _mm512_setzero_si512(), odd = even;  // sums that do not wait for each other
    const std::int8_t* at = v + 4 * c;
    for (int i = 0; i < attention_block / 4; i += 2, at += 8 * size) {
      even = _mm512_dpbusd_epi32(even, four(u + 4 * i), _mm512_loadu_si512(at));
      odd = _mm512_dpbusd_epi32(odd, four(u + 4 * i + 4), _mm512_loadu_si512(at + 4 * size));
    }
    _mm512_storeu_si512(sums + c, _mm512_add_epi32(even, odd));
  }
}

}  // namespace

const AttentionQ8Tile attention_q8_tile = {scores, values};

}  // namespace bie::kernels::cpu::avx512
