// y = x . W + bias with a float activation and a weight of low-bit codes, which stay packed: they are opened in
// registers.
//
// The order of the sum. For every output (m, j), in float32 and with one rounding an operation:
//
//     c(i)  = q(i) - h,  h = 2^(bits - 1)                                        exact
//     y     = 0
//     for every group g, in rising order:
//         a = 0;  for every row i of g, in the order of the packed rows:  a = fma(x(i), c(i), a)
//         y = fma(a, s(g), y)
//         unless Offset::none:  y = fma(X(g), o(g), y)
//     y     = y + bias(j), where there is one
//
//     o(g)  = fma(h, s(g), -z(g))       Offset::value
//     o(g)  = s(g) * (h - z(g))         Offset::zero
//     X(g)  = P(0), where P(t) of 16 sums starts with x of the rows t, t + 16, t + 32, ... of the group, added in that
//             order to 0; then P(t) = P(t) + P(t + d) for all t < d, d = 8, 4, 2, 1
//
// Groups and their rows are those of the weight, so the order depends on k and the groups alone: every kernel of the
// table gives the same bits for every m, n, instruction set and number of threads. A NaN or infinity in x reaches the
// outputs of its row as arithmetic has it. The error is that of a float32 sum: of codes of at most 2^(bits - 1), each
// term rounded once and no weight rounded at all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bie/kernels/gemm.h"
#include "bie/kernels/weight_format.h"

namespace bie::kernels {

/// Activations [m, k], float32, bfloat16 or float16.
struct FloatRows {
  const void* data;
  Dtype dtype;
  std::int64_t row_stride;  ///< bytes
  const float* factor;      ///< [k] that x is multiplied with, in float32 and rounded once, before all else; or null
};

/// Results [m, n] in f32, bf16 or f16, rounded once.
struct FloatResults {
  void* data;
  Dtype dtype;
  std::int64_t row_stride;  ///< bytes
  const float* bias;        ///< [n] or null
};

/// One implementation. The panels that `prepack` makes carry a header, fit the kernels with the same `packed_bytes` and
/// are never stored on disk.
struct WeightOnlyGemmKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const GemmShape&);
  /// Bytes of the panels of a weight that check_weight accepts. Depends on its sizes alone, not on groups or row order.
  std::size_t (*packed_bytes)(const PackedWeight& weight);
  /// `packed` is aligned to 64 bytes.
  void (*prepack)(const PackedWeight& weight, void* packed, const Parallel&);
  // The same panels, made from a weight whose outputs are opened one at a time; nothing lies behind the last of them.
  std::size_t (*rows_bytes)(const WeightRows& weight);
  void (*prepack_rows)(const WeightRows& weight, void* packed, const Parallel&);
  /// bad_shape where `packed` holds a weight of other sizes. On any status but ok the output is untouched.
  Status (*run)(const GemmShape&, const FloatRows& x, const void* packed, const FloatResults& y, const Parallel&);
};

Table<WeightOnlyGemmKernel> weight_only_gemm_table();

/// Why a weight cannot have panels; ok if it can. Scales, zeros and codes are not looked at.
Status check_weight(const PackedWeight& weight);
Status check_weight(const WeightRows& weight);

}  // namespace bie::kernels
