// Products of floats with a weight of packed codes on CUDA (docs/spec/weight-only.md): y = x . W + bias.
//
// A weight [k, n] becomes panels once. Its rows of k stand in slots: those of a group side by side, every group padded
// to whole chunks of 32 slots. Codes stay codes in memory and become 16-bit floats in registers, which hold them
// exactly; products are added in float32 on the tensor cores, those of a group are then multiplied with its scale in
// float32:
//
//     y = sum over groups g of  s(g) * sum of x(i) * (q(i) - z(g))                Offset::zero; none: z = 2^(bits - 1)
//     y = sum over groups g of  s(g) * sum of x(i) * (q(i) - h) + X(g) * o(g)     Offset::value: h = 2^(bits - 1),
//                               o = h * s - z, X the sum of x(i)
//
// x is multiplied as it is where it is float16 or bfloat16 without factor, else as the sum of three bfloat16 parts,
// which have float32's 24 bits. So the error is that of a float32 sum, and y is rounded once. Many rows multiply W
// rounded to x's dtype where weight_only_rounds() says so. The order of the sum is
// the tensor cores'; it depends on the shape alone.
//
// A plan with `int8` is for activations that become codes of 8 bits: the step sizes d and the sums D and U of
// bie/kernels/weight_only_q8.h, exact integers, and y = sum over groups of s(g) * d * D + o(g) * d * U in another
// order.
#pragma once

#include <cstdint>

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/weight_format.h"
#include "bie/kernels/weight_only_gemm.h"

namespace bie::kernels::cuda {

inline constexpr std::int64_t chunk_slots = 32;
/// A weight may have that many runs of widths that are not empty.
inline constexpr int most_weight_runs = 64;

/// How a weight stands in panels; all of it is known without waiting for the device.
struct WeightOnlyPlan {
  std::int64_t k, n, chunks;
  std::int64_t group_chunks;  ///< chunks that share their scales
  int width;                  ///< bits of the place of a code: 1, 2, 4 or 8
  Offset offset;
  Dtype scale;
  bool ordered;  ///< slot i is row i of the weight and of the activation
  bool int8;     ///< activations become codes of 8 bits; false in what the functions below give
};

/// The plan of rows that are slots as they lie: groups are `group` consecutive rows, a multiple of 32 or all of them.
/// `bits`: the most of any row.
WeightOnlyPlan ordered_plan(std::int64_t k, std::int64_t n, std::int64_t group, int bits, Offset, Dtype scale);
/// The plan of any other weight: every group_chunks of its chunks are of one group.
WeightOnlyPlan slot_plan(std::int64_t k, std::int64_t n, std::int64_t chunks, std::int64_t group_chunks, int bits,
                         Offset, Dtype scale);

/// How many runs of group_chunks chunks there are; the last one may be shorter.
constexpr std::int64_t weight_only_runs(const WeightOnlyPlan& p) {
  return p.group_chunks == 0 ? 0 : (p.chunks + p.group_chunks - 1) / p.group_chunks;
}
std::int64_t weight_only_panel_bytes(const WeightOnlyPlan&);

/// Where the rows stand where they are not ordered, in the device's memory.
struct WeightOnlySlots {
  const std::int32_t* row;    ///< [32 * chunks] the packed row in a slot, or -1
  const std::int32_t* group;  ///< [runs] the group of group_chunks chunks
};

/// Arranges a weight whose arrays are in the device's memory, except for `runs`; group_of is not read. 256-byte
/// boundary. Status::bad_shape where the plan is not one of this weight.
Status weight_only_prepack(const PackedWeight&, const WeightOnlyPlan&, const WeightOnlySlots&, void* panels,
                           const Queue&);

/// Bytes of the workspace of a product of m rows, from a 16-byte boundary on.
std::int64_t weight_only_workspace(const WeightOnlyPlan&, std::int64_t m, const FloatRows& x);
/// Whether a product of m rows rounds W to x's dtype on its way to the tensor cores: of 33 rows and more on sm_90,
/// where x is float16 or bfloat16, its scales are too, slots are rows and whole chunks, and rows of x start at
/// multiples of 16 bytes; of more than 64 rows where that is estimated to be faster than to open W in memory for
/// cuBLAS.
bool weight_only_rounds(const WeightOnlyPlan&, std::int64_t m, const FloatRows& x, const Gpu&);
/// y = x . W + bias, of any m; more than 64 rows are fast where weight_only_rounds says so. x.factor and y.bias are in
/// the device's memory. sm_80 and later: Status::bad_shape on others.
Status weight_only_gemm(const WeightOnlyPlan&, std::int64_t m, const FloatRows& x, const void* panels,
                        const FloatResults& y, void* workspace, const Queue&);

/// W as floats [n, 32 * chunks], rounded to f16 or bf16; slots without a row are 0. For products of many rows.
Status weight_only_open_panels(const WeightOnlyPlan&, const void* panels, void* values, Dtype dtype, const Queue&);
/// Rows of x in the order of the slots, [m, 32 * chunks] of that dtype, times the factor.
Status weight_only_slot_rows(const WeightOnlyPlan&, std::int64_t m, const FloatRows& x, const void* panels,
                             void* values, Dtype dtype, const Queue&);

/// W [k, n] of a weight whose arrays are in the device's memory, except for `runs`: the CPU's bits
/// (bie/kernels/weight_values.h).
Status weight_only_open(const PackedWeight&, void* values, Dtype dtype, const Queue&);

}  // namespace bie::kernels::cuda
