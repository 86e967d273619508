// The triangular factor of a symmetric matrix, in double, the same bits on every machine.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"

namespace bie::kernels {

/// a [n, n], symmetric and dense, becomes the lower triangle L with L . L^T = a; what is above the diagonal is left as
/// it was. Blocks of 32 columns: each is factored, then its products are taken from what is right of it by
/// double_gemm.h.
/// @return false where the matrix is not positive definite in double; a is then in pieces.
bool cholesky(double* a, std::int64_t n, const Parallel& parallel);

}  // namespace bie::kernels
