// The tiles of half_gemm.
#pragma once

#include <cstdint>

namespace bie::kernels::cpu {

/// Up to `most` rows of `a`, lda apart, times `panels` neighbouring panels [k][16] of 16-bit floats, with one fused
/// multiply-add a term. Tiles multiply several panels at once where rows are few: the sums of one would wait for each
/// other.
struct HalfGemmTile {
  static constexpr int most_rows = 12, most_panels = 4, lanes = 16;

  int most;
  int (*panels_of)(int rows);  ///< that are multiplied at once; the last ones of a weight may be fewer
  /// y [rows][panels][16].
  void (*run)(const float* a, std::int64_t lda, int rows, const std::uint16_t* packed, int panels, std::int64_t k,
              float* y);
};

namespace portable {
extern const HalfGemmTile f16_gemm_tile, bf16_gemm_tile;
}
namespace avx2 {
extern const HalfGemmTile f16_gemm_tile, bf16_gemm_tile;
}
namespace avx512bw {
extern const HalfGemmTile f16_gemm_tile, bf16_gemm_tile;
}

}  // namespace bie::kernels::cpu
