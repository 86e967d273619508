// b1xb1: activations and weights are signs, acc = k - 2 * popcount(bit(xs) XOR w).
#pragma once

#include "bie/kernels/gemm.h"

namespace bie::kernels {

/// The longest contraction: k - 2 * popcount stays inside an int32.
constexpr std::int64_t max_k_b1 = std::int64_t{1} << 30;

/// Weight: [n, ceil(k/8)] uint8, bit i of byte j is element 8j+i, 1 means >= 0; pad bits are ignored.
/// Activation codes: Dtype::bits in the same layout; bit(v) = v >= 0, so 0 and -0 are 1. Status::too_deep for k >
/// max_k_b1. Source: BITorch Engine 0.2.6 `BinaryLinearForward`; XNOR-Net (Rastegari et al. 2016), section 3.
GemmTable b1xb1_gemm_table();

}  // namespace bie::kernels
