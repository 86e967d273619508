// The products of attention_q8 for AVX2. Bytes of at most 127 in size: two products fit 16 bits, so vpmaddubsw never
// saturates.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/attention/attention_q8.h"

namespace bie::kernels::cpu::avx2 {
namespace {

__m256i four(const void* bytes) {
  std::int32_t word;
  std::memcpy(&word, bytes, 4);
  return _mm256_set1_epi32(word);
}

__m256i load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }

/// sum + products of four neighbours: sizes of q times codes with the sign of q.
__m256i add_products(__m256i sum, __m256i q, __m256i codes) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(codes, q));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

void scores(const std::int8_t* q, const std::int8_t* keys, int quads, std::int32_t* sums) {
  __m256i sum[8];
#pragma GCC unroll 8
  for (__m256i& part : sum) part = _mm256_setzero_si256();
  for (int i = 0; i < quads; ++i, q += 4, keys += 4 * attention_block) {
    const __m256i by = four(q);
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) sum[v] = add_products(sum[v], by, load(keys + 32 * v));
  }
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 8 * v), sum[v]);
}

void values(const std::uint8_t* u, const std::int8_t* v, std::int64_t size, std::int32_t* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::int64_t c = 0; c < size; c += 16) {
    __m256i low = _mm256_setzero_si256(), high = low;
    const std::int8_t* at = v + 4 * c;
    for (int i = 0; i < attention_block / 4; ++i, at += 4 * size) {
      const __m256i by = four(u + 4 * i);
      low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_maddubs_epi16(by, load(at)), ones));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_maddubs_epi16(by, load(at + 32)), ones));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + c), low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + c + 8), high);
  }
}

}  // namespace

const AttentionQ8Tile attention_q8_tile = {scores, values};

}  // namespace bie::kernels::cpu::avx2
