// Products of floats and whole numbers, for backward passes: a gradient times codes.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/gemm.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

struct MixedGemmInput {
  const void* a;                 ///< a[i * row + l * column], i < m, l < k: a matrix or its transpose
  Dtype a_dtype;                 ///< f32 or bf16
  std::int64_t a_row, a_column;  ///< elements; one of them is 1
  const void* b;                 ///< [k][n], dense: whole numbers of magnitude <= 256
  Dtype b_dtype;                 ///< f32 or s8
};

/// y[i][j] = scale * sum over l < k of a[i][l] * b[l][j], dense [m][n].
///
/// A sum is taken with the accuracy of float32. Its order is not part of the contract, but it depends on the shape
/// alone: a kernel gives the same bits whatever the threads. Where a holds infinity or NaN, results of its row may be
/// NaN. Status::bad_shape for negative sizes, bad_dtype for another a or b.
struct MixedGemmKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const GemmShape&);
  Status (*run)(const GemmShape&, const MixedGemmInput&, float scale, float* y, const Parallel&);
};
Table<MixedGemmKernel> mixed_gemm_table();

}  // namespace bie::kernels
