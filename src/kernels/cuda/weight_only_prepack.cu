// Panels are made of packed words.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/weight_words.cuh"

namespace bie::kernels::cuda {
namespace {

constexpr int threads = 256;

/// The place of a code of so many bits.
int place_of(int bits) { return bits <= 2 ? bits : bits <= 4 ? 4 : 8; }

WeightOnlyPlan plan_of(std::int64_t k, std::int64_t n, int bits, Offset offset, Dtype scale) {
  WeightOnlyPlan plan{};
  plan.k = k;
  plan.n = n;
  plan.width = place_of(bits);
  plan.offset = offset;
  plan.scale = scale;
  return plan;
}

struct Prepack {
  Words words;
  WeightOnlySlots slots;
  std::int64_t k, n;
  int tiles, steps, chunks, width, group_chunks;
  bool int8;
  Offset offset;
  const std::int32_t* input_of;
};

/// A thread makes the 16 bytes of a lane in a step.
__global__ void __launch_bounds__(threads) prepack_codes(const __grid_constant__ Prepack p, uint4* codes) {
  const std::int64_t count = std::int64_t{p.tiles} * p.steps * 32;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    const int lane = static_cast<int>(i % 32), step = static_cast<int>(i / 32 % p.steps);
    const std::int64_t tile = i / 32 / p.steps;
    unsigned w[4] = {};
    for (int c = 0; c < step_chunks(p.width); ++c) {
      const int chunk = step * step_chunks(p.width) + c;
      if (chunk >= p.chunks) break;
      for (int slot = 0; slot < 8; ++slot) {
        const std::int64_t at = chunk * chunk_slots + lane_slot(p.int8, lane % 4, slot);
        const std::int64_t row = p.slots.row != nullptr ? p.slots.row[at] : at < p.k ? at : -1;
        if (row < 0) continue;
        const Run& run = p.words.run(row);
        const int move = (1 << (p.width - 1)) - (1 << (run.bits - 1));
        for (int half = 0; half < 2; ++half) {
          const std::int64_t column = tile * tile_outputs + lane / 4 + 8 * half;
          if (column >= p.n) continue;
          const CodePlace place = p.int8 ? byte_place(p.width, c, half, slot) : code_place(p.width, c, half, slot);
          w[place.word] |= static_cast<unsigned>(p.words.code(run, row, column) + move) << place.bit;
        }
      }
    }
    codes[i] = {w[0], w[1], w[2], w[3]};
  }
  publish_weights();
}

/// The group of a run of chunks, or -1.
__device__ std::int32_t group_of_run(const Prepack& p, std::int64_t run) {
  return p.slots.group == nullptr ? static_cast<std::int32_t>(run) : p.slots.group[run];
}

/// The bits of the rows in a run of chunks.
__device__ int bits_of_run(const Prepack& p, std::int64_t run) {
  const std::int64_t slot = run * p.group_chunks * chunk_slots;
  const std::int64_t row = p.slots.row != nullptr ? p.slots.row[slot] : slot;
  return p.words.run(row < 0 ? 0 : row).bits;
}

template <class T>
__global__ void __launch_bounds__(threads) prepack_records(const __grid_constant__ Prepack p, const T* scales,
                                                           const void* zeros, std::int64_t runs, T* records) {
  const std::int64_t count = runs * p.tiles * 8;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    const std::int64_t run = i / 8 % runs, tile = i / 8 / runs, group = group_of_run(p, run);
    T* const record = records + i * 4;
    for (int half = 0; half < 2; ++half) {
      const std::int64_t column = tile * tile_outputs + i % 8 + 8 * half;
      const bool inside = group >= 0 && column < p.n;
      const std::int64_t at = group * p.n + column;
      record[half] = inside ? scales[at] : narrow<T>(0.0f);
      if (p.offset == Offset::value) {
        record[2 + half] = inside ? static_cast<const T*>(zeros)[at] : narrow<T>(0.0f);
      } else {
        const int move = (1 << (p.width - 1)) - (1 << (p.words.runs[0].bits - 1));
        const int zero = p.offset == Offset::none ? 1 << (p.width - 1)
                         : inside                 ? static_cast<const std::int32_t*>(zeros)[at] + move
                                                  : 0;
        reinterpret_cast<std::uint16_t*>(record + 2)[half] = static_cast<std::uint16_t>(zero);
      }
    }
  }
  publish_weights();
}

__global__ void __launch_bounds__(threads) prepack_rows(const __grid_constant__ Prepack p, std::int64_t runs,
                                                        float* middles, std::int32_t* inputs, std::int32_t* groups) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < p.chunks * chunk_slots;
       i += std::int64_t{gridDim.x} * threads) {
    if (middles != nullptr && i < runs) middles[i] = static_cast<float>(1 << (bits_of_run(p, i) - 1));
    if (inputs == nullptr) continue;
    if (i < runs) groups[i] = group_of_run(p, i);
    const std::int32_t row = p.slots.row != nullptr ? p.slots.row[i] : i < p.k ? static_cast<std::int32_t>(i) : -1;
    inputs[i] = row < 0 || p.input_of == nullptr ? row : p.input_of[row];
  }
  publish_weights();
}

}  // namespace

WeightOnlyPlan ordered_plan(std::int64_t k, std::int64_t n, std::int64_t group, int bits, Offset offset, Dtype scale) {
  WeightOnlyPlan plan = plan_of(k, n, bits, offset, scale);
  plan.chunks = over(k, chunk_slots);
  plan.ordered = true;
  plan.group_chunks = group >= k ? std::max<std::int64_t>(1, plan.chunks) : group / chunk_slots;
  return plan;
}

WeightOnlyPlan slot_plan(std::int64_t k, std::int64_t n, std::int64_t chunks, std::int64_t group_chunks, int bits,
                         Offset offset, Dtype scale) {
  WeightOnlyPlan plan = plan_of(k, n, bits, offset, scale);
  plan.chunks = chunks;
  plan.group_chunks = group_chunks;
  return plan;
}

std::int64_t weight_only_panel_bytes(const WeightOnlyPlan& plan) {
  return weight_only_runs(plan) == 0 ? 0 : PanelLayout(plan).bytes;
}

Status weight_only_prepack(const PackedWeight& w, const WeightOnlyPlan& plan, const WeightOnlySlots& slots,
                           void* panels, const Queue& queue) {
  Prepack p{};
  if (!fits(plan) || plan.k != w.k || plan.n != w.n || plan.offset != w.offset || plan.scale != w.scale_dtype ||
      !words_of(w, &p.words) || (!plan.ordered && (slots.row == nullptr || slots.group == nullptr)))
    return Status::bad_shape;
  if (w.n == 0 || plan.chunks == 0) return Status::ok;
  const PanelLayout layout(plan);
  if (!plan.ordered) p.slots = slots;
  p.k = w.k;
  p.n = w.n;
  p.tiles = static_cast<int>(layout.tiles);
  p.steps = static_cast<int>(layout.steps);
  p.chunks = static_cast<int>(plan.chunks);
  p.width = plan.width;
  p.int8 = plan.int8;
  p.group_chunks = static_cast<int>(plan.group_chunks);
  p.offset = plan.offset;
  p.input_of = w.input_of;
  Status status = launch(prepack_codes, blocks_for(layout.tiles * layout.steps * 32, threads, 1 << 20), threads, 0,
                         queue, p, static_cast<uint4*>(panels));
  if (status != Status::ok) return status;
  const std::int64_t runs = layout.runs;
  status = with_float(plan.scale, [&](auto type) {
    using T = decltype(type);
    return launch(prepack_records<T>, blocks_for(runs * layout.tiles * 8, threads), threads, 0, queue, p,
                  static_cast<const T*>(w.scales), w.zeros, runs,
                  reinterpret_cast<T*>(at_byte(panels, layout.records_at)));
  });
  if (status != Status::ok || (plan.ordered && plan.offset != Offset::value)) return status;
  float* const middles =
      plan.offset == Offset::value ? reinterpret_cast<float*>(at_byte(panels, layout.middles_at)) : nullptr;
  return launch(prepack_rows, blocks_for(plan.chunks * chunk_slots, threads), threads, 0, queue, p, runs, middles,
                inputs_of(plan, panels), groups_of(plan, panels));
}

}  // namespace bie::kernels::cuda
