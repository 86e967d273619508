// y = x . W + bias with a weight of low-bit codes, which stay packed, and an activation that becomes int8 codes with
// one step size for each row and each group of the weight: products of integers, where weight_only_gemm.h has floats.
//
// For every row m of x and every group g of the weight:
//
//     x'(i) = x(i) as float32, times factor(i) where there is one, in float32 and rounded once
//     a     = max |x'(i)| over the rows i of g
//     a NaN or infinite:  d = NaN, all u(i) = 0
//     a < 2^-100:         d = 0,   all u(i) = 0
//     else                r = 127 / a,  d = a / 127,  u(i) = rint(x'(i) * r)    float32, each rounded once; half to
//     even
//
// |u(i)| <= 127 follows. For every output (m, j), the sums in integers and exact, the rest in float32 with one rounding
// an operation:
//
//     D     = sum of u(i) * (q(i) - h),  h = 2^(bits - 1); of WeightRows: of u(i) * (step * q(i) - zero)
//     U     = sum of u(i)
//     y     = 0
//     for every group g, in rising order:
//         t = float(D) * s(g)
//         unless Offset::none:  t = fma(float(U), o(g), t)
//         y = fma(d, t, y)
//     y     = y + bias(j), where there is one
//
// with s(g) and o(g) of weight_only_gemm.h. Every kernel of the table gives the same bits for every m, n, instruction
// set and number of threads. A NaN or infinity in a row of x makes all outputs of that row NaN.
#pragma once

#include "bie/kernels/weight_only_gemm.h"

namespace bie::kernels {

/// Rows that a group may have, so that D and h * U are int32.
inline constexpr std::int64_t most_q8_rows = 131072;

/// Kernels of the same contract. Their panels fit no kernel of weight_only_gemm.
Table<WeightOnlyGemmKernel> weight_only_q8_table();

/// check_weight, and too_deep where a group has more than most_q8_rows.
Status check_q8_weight(const PackedWeight& weight);
Status check_q8_weight(const WeightRows& weight);

}  // namespace bie::kernels
