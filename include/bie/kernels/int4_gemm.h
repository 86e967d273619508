// s4xs4: q = clamp(rint(xs / step), -8, 7).
#pragma once

#include "bie/kernels/gemm.h"

namespace bie::kernels {

/// The longest contraction that every kernel carries: sixteen times the sum still fits an int32.
constexpr std::int64_t max_k_s4 = (std::int64_t{1} << 21) - 1;

/// Weight: [n, ceil(k/2)] int8, element 2j in the high nibble of byte j, element 2j+1 in the low one, two's complement;
/// the pad nibble is ignored. Activation codes: Dtype::s4 in the same layout. Status::too_deep for k > max_k_s4.
/// Source: BITorch Engine 0.2.6 `Q4LinearCutlass`.
GemmTable s4xs4_gemm_table();

}  // namespace bie::kernels
