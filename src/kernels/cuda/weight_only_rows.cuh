// Rows of the activation in the order of a weight's slots: as floats, and as codes of 8 bits with a step size for every
// row and run (docs/spec/weight-only.md, "Int8 activations").
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/weight_words.cuh"

namespace bie::kernels::cuda::weight_only {

/// x of a slot, times its factor.
struct SlotRows {
  FloatRows x;
  const std::int32_t *inputs, *groups;  ///< of slots and of runs, or null where slots are ordered
  std::int64_t m, k, slots;
  int runs, run_slots;  ///< slots of a run share a scale
  bool fours;           ///< slots are ordered, x has 16 bits and no factor, and its rows start at multiples of 8 bytes

  __device__ float at(std::int64_t row, std::int64_t slot) const {
    const std::int64_t input = inputs != nullptr ? inputs[slot] : slot < k ? slot : -1;
    if (input < 0) return 0;
    const float v = float_at(static_cast<const char*>(x.data) + row * x.row_stride, x.dtype, input);
    return x.factor == nullptr ? v : v * x.factor[input];
  }
  /// Slots `slot`, a multiple of 4, and the next three.
  __device__ void four(std::int64_t row, std::int64_t slot, float (&v)[4]) const {
    if (!fours || slot + 4 > k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = at(row, slot + i);
      return;
    }
    const auto pairs =
        __ldg(reinterpret_cast<const uint2*>(static_cast<const char*>(x.data) + row * x.row_stride) + slot / 4);
    const unsigned words[2] = {pairs.x, pairs.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto bits = static_cast<unsigned short>(words[i / 2] >> (16 * (i % 2)));
      v[i] = x.dtype == Dtype::bf16 ? widen(__ushort_as_bfloat16(bits)) : widen(__ushort_as_half(bits));
    }
  }
};

inline SlotRows slot_rows_of(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x, const void* panels) {
  const bool fours = plan.ordered && x.dtype != Dtype::f32 && x.factor == nullptr && x.row_stride % 8 == 0 &&
                     reinterpret_cast<std::uintptr_t>(x.data) % 8 == 0;
  const auto runs = static_cast<int>(weight_only_runs(plan));
  const auto run_slots = static_cast<int>(plan.group_chunks * chunk_slots);
  return {x,    inputs_of(plan, panels), groups_of(plan, panels), m, plan.k, plan.chunks * chunk_slots, runs, run_slots,
          fours};
}

/// The step size of a row's codes in one run, and that times the sum of the codes.
using RowScale = float2;

/// A row's slots in one run become codes, four bytes a time to `to`. `lanes` neighbours, a power of two, work together
/// and lane l of them begins at slot 4 l; all lanes of a warp come.
template <int lanes>
__device__ RowScale quantise_run(const SlotRows& rows, std::int64_t row, int run, int lane, unsigned* to) {
  const std::int64_t first = std::int64_t{run} * rows.run_slots;
  const int slots = static_cast<int>(min(std::int64_t{rows.run_slots}, rows.slots - first));
  int before = run, behind = run;  // runs of the same group
  if (rows.groups != nullptr) {
    while (before > 0 && rows.groups[before - 1] == rows.groups[run]) --before;
    while (behind + 1 < rows.runs && rows.groups[behind + 1] == rows.groups[run]) ++behind;
  }
  const std::int64_t group_end = min((std::int64_t{behind} + 1) * rows.run_slots, rows.slots);
  float v[4];
  unsigned largest = 0;  // of |x| in the group; bits order numbers, NaN above all
#pragma unroll 4
  for (std::int64_t slot = std::int64_t{before} * rows.run_slots + 4 * lane; slot < group_end; slot += 4 * lanes) {
    rows.four(row, slot, v);
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = max(largest, __float_as_uint(v[i]) & 0x7fffffff);
  }
#pragma unroll
  for (int d = lanes / 2; d > 0; d /= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, d));
  const float a = __uint_as_float(largest);
  const bool finite = largest < 0x7f800000, small = a < 0x1p-100f;
  const float inverse = finite && !small ? __fdiv_rn(127.0f, a) : 0;
  const float step = !finite ? __uint_as_float(0x7fffffff) : small ? 0 : __fdiv_rn(a, 127.0f);
  int sum = 0;
#pragma unroll 4
  for (int slot = 4 * lane; slot < slots; slot += 4 * lanes) {
    if (slots > 4 * lanes || before != behind) rows.four(row, first + slot, v);
    unsigned word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int code = finite ? __float2int_rn(v[i] * inverse) : 0;
      sum += code;
      word |= static_cast<unsigned>(code & 0xff) << (8 * i);
    }
    to[slot / 4] = word;
  }
#pragma unroll
  for (int d = lanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  return {step, step * static_cast<float>(sum)};
}

}  // namespace bie::kernels::cuda::weight_only
