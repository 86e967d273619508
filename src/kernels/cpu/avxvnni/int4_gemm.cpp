// s4xs4 tile: eight codes per lane and unit, as avx512/int4_gemm.cpp has them. A nibble moved to the top of its byte is
// sixteen times its signed value; one arithmetic shift at the end undoes it (max_k_s4 keeps the sum inside an int32).
#include "kernels/cpu/avxvnni/tiles.h"

namespace bie::kernels::cpu::avxvnni {
namespace {

struct Product : DotProduct {
  static constexpr int rows = s4xs4_rows, parts = 2;
  static __m256i weights(const char* at, int part) {
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
    return _mm256_and_si256(part == 0 ? _mm256_slli_epi16(both, 4) : both, _mm256_set1_epi8(static_cast<char>(0xf0)));
  }
  static __m256i broadcast(const char* row, std::int64_t unit, int part) {
    return _mm256_set1_epi32(reinterpret_cast<const std::int32_t*>(row)[2 * unit + part]);
  }
  static __m256i finish(__m256i sum, __m256i init) {
    // Only with the start value is the sum one of q * w, not (q + 8) * w, and sure to fit: it may wrap on the way.
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_slli_epi32(init, 4)), 4);
  }
};

}  // namespace

void BIE_ENCODING::s4xs4(const TileArgs& args) { avx2::run_tile<Product>(args); }

}  // namespace bie::kernels::cpu::avxvnni
