// s8xs8 tile: two codes per lane and unit, widened to int16; vpmaddwd is exact where vpmaddubsw would saturate.
#include <cstdint>

#include "kernels/cpu/avx2/tile_loop.h"

namespace bie::kernels::cpu::avx2 {
namespace {

struct Product : Vectors256 {
  static constexpr int rows = 6, lanes = 8, unit_bytes = 2, parts = 1;
  static constexpr bool late = false;
  static constexpr std::int64_t max_units = INT64_MAX;  // int32 sums need no flush
  static __m256i weights(const char* at, int) {
    return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static __m256i broadcast(const char* row, std::int64_t unit, int) {
    return _mm256_set1_epi32(reinterpret_cast<const std::int32_t*>(row)[unit]);
  }
  static __m256i add(__m256i sum, __m256i x, __m256i w) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w)); }
  static void flush(__m256i sum, std::int32_t* acc) {
    __m256i* at = reinterpret_cast<__m256i*>(acc);
    _mm256_store_si256(at, _mm256_add_epi32(_mm256_load_si256(at), sum));
  }
  static __m256i finish(__m256i sum, __m256i init) { return _mm256_add_epi32(sum, init); }
};

}  // namespace

const Tile s8xs8_tile = {Code::s16_s8, Product::rows, 2 * Product::lanes, 2,    2,
                         encode,       nullptr,       run_tile<Product>,  store};

}  // namespace bie::kernels::cpu::avx2
