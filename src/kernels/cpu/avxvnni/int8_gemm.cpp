// s8xs8 tile: four codes per lane and unit; vpdpbusd of unsigned q + 128 with signed weights.
#include "kernels/cpu/avxvnni/tiles.h"

namespace bie::kernels::cpu::avxvnni {
namespace {

struct Product : DotProduct {
  static constexpr int rows = s8xs8_rows, parts = 1;
  static __m256i weights(const char* at, int) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); }
  static __m256i broadcast(const char* row, std::int64_t unit, int) {
    return _mm256_set1_epi32(reinterpret_cast<const std::int32_t*>(row)[unit]);
  }
  static __m256i finish(__m256i sum, __m256i init) { return _mm256_add_epi32(sum, init); }
};

}  // namespace

void BIE_ENCODING::s8xs8(const TileArgs& args) { avx2::run_tile<Product>(args); }

}  // namespace bie::kernels::cpu::avxvnni
