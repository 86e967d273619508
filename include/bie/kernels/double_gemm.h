// Products of doubles added to what is there, with a written order of the sum: every kernel and any number of threads
// gives the same bits. Calibration is made of them: docs/spec/language-models.md#gptq-on-the-grid-of-a-type.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// A matrix in memory: element (i, j) is data[i * row + j * column].
struct DoubleMatrix {
  const double* data;
  std::int64_t row, column;
};

struct DoubleGemm {
  std::int64_t m, n, k;
  DoubleMatrix a;  ///< [m, k]
  DoubleMatrix b;  ///< [k, n]
  double* c;       ///< [m, n], rows c_row doubles apart; shares nothing with a and b
  std::int64_t c_row;
  bool subtract = false;  ///< products are taken from c
};

/// c[i, j] = c[i, j] + (or -) sum over k of a[i, k] * b[k, j]: k ascending, one fused multiply-add per term.
struct DoubleGemmKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const DoubleGemm&);
  /// bad_shape for a negative size.
  Status (*run)(const DoubleGemm&, const Parallel&);
};
Table<DoubleGemmKernel> double_gemm_table();

}  // namespace bie::kernels
