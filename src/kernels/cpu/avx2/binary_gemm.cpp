// b1xb1 tile: one 32-bit word of signs a lane and unit; xor, popcount of bytes by two table look-ups.
#include "kernels/cpu/avx2/tile_loop.h"

namespace bie::kernels::cpu::avx2 {
namespace {

struct Product : Vectors256 {
  static constexpr int rows = 4, lanes = 8, unit_bytes = 4, parts = 1;
  static constexpr bool late = false;
  static constexpr std::int64_t max_units = 31;  // a byte counts at most 8 per unit and holds 255
  static __m256i weights(const char* at, int) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); }
  static __m256i broadcast(const char* row, std::int64_t unit, int) {
    return _mm256_set1_epi32(reinterpret_cast<const std::int32_t*>(row)[unit]);
  }
  static __m256i add(__m256i sum, __m256i x, __m256i w) {
    const __m256i counts = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                                            0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i differ = _mm256_xor_si256(x, w);
    const __m256i bytes =
        _mm256_add_epi8(_mm256_shuffle_epi8(counts, _mm256_and_si256(differ, low)),
                        _mm256_shuffle_epi8(counts, _mm256_and_si256(_mm256_srli_epi16(differ, 4), low)));
    return _mm256_add_epi8(sum, bytes);
  }
  static void flush(__m256i bytes, std::int32_t* acc) {
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
    const __m256i words = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m256i* at = reinterpret_cast<__m256i*>(acc);
    _mm256_store_si256(at, _mm256_add_epi32(_mm256_load_si256(at), words));
  }
  static __m256i finish(__m256i sum, __m256i k) { return _mm256_sub_epi32(k, _mm256_slli_epi32(sum, 1)); }
};

}  // namespace

const Tile b1xb1_tile = {Code::bits, Product::rows, 2 * Product::lanes, 32,   4,
                         encode,     sign_planes,   run_tile<Product>,  store};

}  // namespace bie::kernels::cpu::avx2
