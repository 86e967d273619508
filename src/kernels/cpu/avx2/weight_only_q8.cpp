// Weight-only products with integer activations for AVX2: vpmaddubsw, whose sums of int16 are kept for as many rows as
// they hold and never saturate. Codes of 8 bits are signed: their magnitude is the unsigned operand.
#include "kernels/cpu/avx2/q8_vectors.h"
#include "kernels/cpu/portable/weight_only_q8_loop.h"

namespace bie::kernels::cpu::avx2 {
namespace {

constexpr int most_rows = 4;

__m256i pairs(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }

template <int width>
struct Product {
  using Sum = __m256i;
  using Codes = __m256i;
  static constexpr int rows = most_rows;
  static constexpr bool starts = true;
  static Sum zero() { return _mm256_setzero_si256(); }
  static constexpr int most = 32767 / (2 * 127 * ((1 << width) - 1)) / (8 / width) * (8 / width);  ///< quads
  static Codes codes(__m256i field) { return field; }
  template <int r>
  static __m256i row(const std::int8_t* u) {
    return Q8Vectors::four_bytes(u + 4 * r);
  }
  template <int r>
  static Sum add(Sum sum, Codes codes, __m256i by) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, by));
  }
  static __m256i wide(Sum sum) { return pairs(sum); }
};

template <>
struct Product<8> {
  using Sum = __m256i;
  struct Codes {
    __m256i code, size;
  };
  static constexpr int rows = most_rows;
  static constexpr bool starts = false;
  static constexpr int most = 0;
  static Codes codes(__m256i field) {
    const __m256i code = _mm256_xor_si256(field, _mm256_set1_epi8(static_cast<char>(0x80)));
    return {code, _mm256_abs_epi8(code)};
  }
  template <int r>
  static __m256i row(const std::int8_t* u) {
    return Q8Vectors::four_bytes(u + 4 * r);
  }
  template <int r>
  static Sum add(Sum sum, Codes codes, __m256i by) {
    return _mm256_add_epi32(sum, pairs(_mm256_maddubs_epi16(codes.size, _mm256_sign_epi8(by, codes.code))));
  }
};

__m256i lanes_of(std::int32_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace

/// Magnitudes are compared by their bits, which rise as they do; NaN is above infinity.
float weight_only_q8_codes(const Q8CodesArgs& a, std::int32_t* sum) {
  __m256i most = _mm256_setzero_si256();
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (std::int32_t i = 0; i < a.count; i += 8) {
    const __m256 x = _mm256_maskload_ps(a.x + i, lanes_of(a.count - i));
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(x), magnitude));
  }
  std::int32_t eight[8], largest = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(eight), most);
  for (const std::int32_t each : eight) largest = each > largest ? each : largest;
  float of_largest;
  std::memcpy(&of_largest, &largest, 4);
  const bool finite = largest < 0x7f800000, live = finite && of_largest >= 0x1p-100f;
  const __m256 r = _mm256_set1_ps(live ? 127.0f / of_largest : 0.0f);
  __m256i all = _mm256_setzero_si256();
  std::int8_t* u = a.u;
  const std::int64_t stride = std::int64_t{4} * a.rows;
  for (std::int32_t i = 0, left = a.quads; left > 0; i += 8, left -= 2) {
    const __m256i lanes = live ? lanes_of(a.count - i) : _mm256_setzero_si256();
    const __m256i code = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_maskload_ps(a.x + i, lanes), r));
    all = _mm256_add_epi32(all, code);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    const __m128i bytes = _mm_packs_epi16(words, words);
    const std::int32_t first = _mm_cvtsi128_si32(bytes), second = _mm_extract_epi32(bytes, 1);
    std::memcpy(u, &first, 4);
    if (left > 1) std::memcpy(u + stride, &second, 4);
    u += 2 * stride;
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(eight), all);
  *sum = 0;
  for (const std::int32_t each : eight) *sum += each;
  return live ? of_largest / 127.0f : finite ? 0.0f : __builtin_nanf("");
}

namespace {
void run(const WeightOnlyQ8Args& a) { q8::run<Q8Vectors, Product>(a); }
}  // namespace

const WeightOnlyQ8Tile weight_only_q8_tile = {most_rows, 1, weight_only_q8_codes, run};

}  // namespace bie::kernels::cpu::avx2
