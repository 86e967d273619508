// s8xs8 tile: two codes per lane and unit, widened to int16; vpmaddwd is exact where vpmaddubsw would saturate.
#include "kernels/cpu/avx512bw/vectors.h"

namespace bie::kernels::cpu::avx512bw {
namespace {

struct Product : Vectors512 {
  static constexpr int lanes = 16, unit_bytes = 2, parts = 1;
  static constexpr std::int64_t max_units = INT64_MAX;  // int32 sums need no flush
  static Vector weights(const char* at, int) {
    return _mm512_cvtepi8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static Vector broadcast(const char* row, std::int64_t unit, int) {
    return _mm512_set1_epi32(reinterpret_cast<const std::int32_t*>(row)[unit]);
  }
  static Vector add(Vector sum, Vector x, Vector w) { return _mm512_add_epi32(sum, _mm512_madd_epi16(x, w)); }
  static void flush(Vector sum, std::int32_t* acc) { add_to(acc, sum); }
  static __m256i finish(__m256i sum, __m256i init) { return _mm256_add_epi32(sum, init); }
};

}  // namespace

const Tile s8xs8_tile = {Code::s16_s8, Product::rows, 2 * Product::lanes,      2,          2,
                         avx2::encode, nullptr,       avx2::run_tile<Product>, avx2::store};

}  // namespace bie::kernels::cpu::avx512bw
