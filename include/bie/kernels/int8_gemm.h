// s8xs8: q = clamp(rint(xs / step), -128, 127).
#pragma once

#include "bie/kernels/gemm.h"

namespace bie::kernels {

/// The longest contraction whose int32 sum cannot overflow: k * 128 * 128 < 2^31.
constexpr std::int64_t max_k_s8 = 131071;

/// Weight: [n, k] int8. Activation codes: Dtype::s8. Status::too_deep for k > max_k_s8.
/// Source: BITorch Engine 0.2.6 `Q8LinearCutlass`.
GemmTable s8xs8_gemm_table();

}  // namespace bie::kernels
