// Codes in the words of a weight, as GPTQ and EXL2 store them, and its plan's arrays.
#pragma once

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/weight_opener.cuh"

namespace bie::kernels::cuda {

/// Rows of one width.
struct Run {
  int bits;
  std::int64_t first_row, first_word;
};
struct Words {
  const std::uint32_t* words;
  std::int64_t n;
  int count;
  Run runs[most_weight_runs];

  __device__ const Run& run(std::int64_t row) const {
    int r = 0;
    while (r + 1 < count && row >= runs[r + 1].first_row) ++r;
    return runs[r];
  }
  __device__ int code(const Run& run, std::int64_t row, std::int64_t column) const {
    const std::int64_t bit = (row - run.first_row) * run.bits;
    const std::uint32_t* const at = words + (run.first_word + bit / 32) * n + column;
    const int shift = static_cast<int>(bit % 32);
    std::uint32_t word = *at >> shift;
    if (shift + run.bits > 32) word |= at[n] << (32 - shift);
    return static_cast<int>(word & ((1u << run.bits) - 1));
  }
};

inline bool words_of(const PackedWeight& w, Words* out) {
  *out = {w.words, w.n, 0, {}};
  std::int64_t row = 0, word = 0;
  for (int r = 0; r < w.run_count; ++r) {
    if (w.runs[r].rows > 0) {
      if (out->count == most_weight_runs) return false;
      out->runs[out->count++] = {w.runs[r].bits, row, word};
    }
    row += w.runs[r].rows;
    word += run_words(w.runs[r].bits, w.runs[r].rows);
  }
  return row == w.k;
}

__device__ inline float float_at(const void* from, Dtype dtype, std::int64_t i) {
  switch (dtype) {
    case Dtype::f32: return static_cast<const float*>(from)[i];
    case Dtype::bf16: return widen(static_cast<const __nv_bfloat16*>(from)[i]);
    default: return widen(static_cast<const __half*>(from)[i]);
  }
}

/// Whether a plan is one at all.
inline bool fits(const WeightOnlyPlan& p) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  return p.k >= 0 && p.n >= 0 && p.chunks >= 0 && p.n < most && p.chunks < most / chunk_slots &&
         (p.chunks == 0 || p.group_chunks > 0) && p.chunks * chunk_slots >= p.k && is_float(p.scale);
}

inline char* at_byte(const void* panels, std::int64_t at) {
  return const_cast<char*>(static_cast<const char*>(panels)) + at;
}

/// Panels as the tile and the opener take them; the activation is left empty.
inline weight_only::Args args_of(const WeightOnlyPlan& plan, const void* panels) {
  const PanelLayout layout(plan);
  weight_only::Args p{};
  p.codes = static_cast<const uint4*>(panels);
  p.records = at_byte(panels, layout.records_at);
  p.middles = reinterpret_cast<const float*>(at_byte(panels, layout.middles_at));
  p.tiles = static_cast<int>(layout.tiles);
  p.steps = static_cast<int>(layout.steps);
  p.chunks = static_cast<int>(plan.chunks);
  p.runs = static_cast<int>(layout.runs);
  p.record_bytes = static_cast<int>(8 * layout.record_bytes);
  p.group_chunks = static_cast<int>(plan.group_chunks);
  p.splits = 1;
  p.offset = plan.offset;
  p.wide_scales = plan.scale == Dtype::f32;
  p.bf16_scales = plan.scale == Dtype::bf16;
  p.n = static_cast<int>(plan.n);
  return p;
}

inline std::int32_t* inputs_of(const WeightOnlyPlan& plan, const void* panels) {
  return plan.ordered ? nullptr : reinterpret_cast<std::int32_t*>(at_byte(panels, PanelLayout(plan).inputs_at));
}
inline std::int32_t* groups_of(const WeightOnlyPlan& plan, const void* panels) {
  return plan.ordered ? nullptr : reinterpret_cast<std::int32_t*>(at_byte(panels, PanelLayout(plan).groups_at));
}

}  // namespace bie::kernels::cuda
