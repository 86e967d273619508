// The tiles of double_gemm.
#pragma once

#include <cstdint>

namespace bie::kernels::cpu {

struct DoubleGemmTile {
  static constexpr int most_rows = 8, most_columns = 24;
  int rows;
  /// c [count, columns], the columns being three vectors, += a . panel: a is (i, p) at a[i * row + p * column], count
  /// <= rows; the panel is [k, columns].
  void (*run)(const double* a, std::int64_t row, std::int64_t column, int count, const double* panel, std::int64_t k,
              double* c);
};

namespace portable {
extern const DoubleGemmTile double_gemm_tile;
}
namespace avx2 {
extern const DoubleGemmTile double_gemm_tile;
}
namespace avx512bw {
extern const DoubleGemmTile double_gemm_tile;
}

}  // namespace bie::kernels::cpu
