// s4xs4 tile: four codes per lane and unit; byte i of a unit holds code i in its low nibble and code i + 2 in its high.
// vpmaddubsw of unsigned q + 8 (0..15) with signed weights cannot saturate: a pair is at most 2 * 15 * 8.
#include "kernels/cpu/avx2/tile_loop.h"

namespace bie::kernels::cpu::avx2 {
namespace {

struct Product : Vectors256 {
  static constexpr int rows = 4, lanes = 16, unit_bytes = 2, parts = 2;
  static constexpr bool late = false;
  static constexpr std::int64_t max_units = 64;  // two pairs a unit: 64 * 2 * 240 = 30720 fits an int16
  static __m256i weights(const char* at, int part) {
    const __m256i values = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1,  //
                                            0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i nibbles = _mm256_and_si256(part == 0 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(values, nibbles);
  }
  static __m256i broadcast(const char* row, std::int64_t unit, int part) {
    return _mm256_set1_epi16(reinterpret_cast<const std::int16_t*>(row)[2 * unit + part]);
  }
  static __m256i add(__m256i sum, __m256i x, __m256i w) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(x, w)); }
  static void flush(__m256i sum, std::int32_t* acc) {
    __m256i* at = reinterpret_cast<__m256i*>(acc);
    const __m256i low = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(sum));
    const __m256i high = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(sum, 1));
    _mm256_store_si256(at, _mm256_add_epi32(_mm256_load_si256(at), low));
    _mm256_store_si256(at + 1, _mm256_add_epi32(_mm256_load_si256(at + 1), high));
  }
  static __m256i finish(__m256i sum, __m256i init) { return _mm256_add_epi32(sum, init); }
};

}  // namespace

const Tile s4xs4_tile = {Code::u8_s4, Product::rows, 2 * Product::lanes, 4,    2,
                         encode,      nullptr,       run_tile<Product>,  store};

}  // namespace bie::kernels::cpu::avx2
