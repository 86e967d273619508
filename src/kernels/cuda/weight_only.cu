// Panels of packed codes: what makes them, opens them and calls the tile.
#include "bie/kernels/cuda/weight_only.h"

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/weight_only_tile.cuh"
#include "kernels/cuda/weight_panels.cuh"

namespace bie::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int most_runs = 8;  ///< of widths: each of 1, 2, 3, 4, 5, 6 and 8 bits at most once, and one more

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

// Rows of packed words.

struct Run {
  int bits;
  std::int64_t first_row, first_word;
};
struct Words {
  const std::uint32_t* words;
  std::int64_t n;
  int count;
  Run runs[most_runs];

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

bool words_of(const PackedWeight& w, Words* out) {
  *out = {w.words, w.n, 0, {}};
  std::int64_t row = 0, word = 0;
  for (int r = 0; r < w.run_count; ++r) {
    if (w.runs[r].rows > 0) {
      if (out->count == most_runs) return false;
      out->runs[out->count++] = {w.runs[r].bits, row, word};
    }
    row += w.runs[r].rows;
    word += run_words(w.runs[r].bits, w.runs[r].rows);
  }
  return row == w.k;
}

__device__ float scale_at(const void* from, Dtype dtype, std::int64_t i) {
  switch (dtype) {
    case Dtype::f32: return static_cast<const float*>(from)[i];
    case Dtype::bf16: return widen(static_cast<const __nv_bfloat16*>(from)[i]);
    default: return widen(static_cast<const __half*>(from)[i]);
  }
}

// Prepacking. A thread makes the 16 bytes of a lane in a step.

struct Prepack {
  Words words;
  WeightOnlySlots slots;
  std::int64_t k, n;
  int tiles, steps, chunks, width, group_chunks;
  Offset offset;
  const std::int32_t* input_of;
};

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
        const std::int64_t at = chunk * chunk_slots + lane % 4 * 8 + slot;
        const std::int64_t row = p.slots.row != nullptr ? p.slots.row[at] : at < p.k ? at : -1;
        if (row < 0) continue;
        const Run& run = p.words.run(row);
        const int move = (1 << (p.width - 1)) - (1 << (run.bits - 1));
        for (int half = 0; half < 2; ++half) {
          const std::int64_t column = tile * tile_outputs + lane / 4 + 8 * half;
          if (column >= p.n) continue;
          const CodePlace place = code_place(p.width, c, half, slot);
          w[place.word] |= static_cast<unsigned>(p.words.code(run, row, column) + move) << place.bit;
        }
      }
    }
    codes[i] = {w[0], w[1], w[2], w[3]};
  }
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
}

__global__ void __launch_bounds__(threads)
    prepack_rows(const __grid_constant__ Prepack p, std::int64_t runs, float* middles, std::int32_t* inputs) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < p.chunks * chunk_slots;
       i += std::int64_t{gridDim.x} * threads) {
    if (middles != nullptr && i < runs) middles[i] = static_cast<float>(1 << (bits_of_run(p, i) - 1));
    if (inputs == nullptr) continue;
    const std::int32_t row = p.slots.row != nullptr ? p.slots.row[i] : i < p.k ? static_cast<std::int32_t>(i) : -1;
    inputs[i] = row < 0 || p.input_of == nullptr ? row : p.input_of[row];
  }
}

// Panels, read.

char* at_byte(const void* panels, std::int64_t at) { return const_cast<char*>(static_cast<const char*>(panels)) + at; }

weight_only::Args args_of(const WeightOnlyPlan& plan, const void* panels) {
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

const std::int32_t* inputs_of(const WeightOnlyPlan& plan, const void* panels) {
  return plan.ordered ? nullptr : reinterpret_cast<const std::int32_t*>(at_byte(panels, PanelLayout(plan).inputs_at));
}

/// x of a slot, times its factor.
struct SlotRows {
  FloatRows x;
  const std::int32_t* inputs;
  std::int64_t m, k, slots;

  __device__ float operator()(std::int64_t i) const {
    const std::int64_t row = i / slots, slot = i % slots;
    const std::int64_t input = inputs != nullptr ? inputs[slot] : slot < k ? slot : -1;
    if (input < 0) return 0;
    const float v = scale_at(static_cast<const char*>(x.data) + row * x.row_stride, x.dtype, input);
    return x.factor == nullptr ? v : v * x.factor[input];
  }
};

template <class T>
__global__ void __launch_bounds__(threads) slot_rows(const __grid_constant__ SlotRows rows, T* out) {
  let_next_start();
  wait_for_previous_kernel();
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < rows.m * rows.slots;
       i += std::int64_t{gridDim.x} * threads)
    out[i] = narrow<T>(rows(i));
}

/// The three parts of float32, one after another [3][m][slots].
__global__ void __launch_bounds__(threads) slot_parts(const __grid_constant__ SlotRows rows, __nv_bfloat16* out) {
  let_next_start();
  wait_for_previous_kernel();
  const std::int64_t count = rows.m * rows.slots;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    float rest = rows(i);
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      const __nv_bfloat16 rounded = __float2bfloat16_rn(rest);
      out[part * count + i] = rounded;
      rest -= __bfloat162float(rounded);
    }
  }
}

bool needs_parts(const FloatRows& x) { return x.dtype == Dtype::f32 || x.factor != nullptr; }

/// Whether the tile can read x as it lies.
bool is_direct(const WeightOnlyPlan& plan, const FloatRows& x) {
  return plan.ordered && !needs_parts(x) && plan.k % chunk_slots == 0 && x.row_stride % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

SlotRows slot_rows_of(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x, const void* panels) {
  return {x, inputs_of(plan, panels), m, plan.k, plan.chunks * chunk_slots};
}

template <class Kernel, class... A>
Status launch_rows(Kernel kernel, std::int64_t count, const Gpu& gpu, const Queue& queue, const A&... arguments) {
  const std::int64_t blocks = blocks_for(count, threads);
  return gpu.sm >= 90 ? launch_beside(kernel, blocks, threads, 0, queue, arguments...)
                      : launch(kernel, blocks, threads, 0, queue, arguments...);
}

// Opening panels: a thread the 16 bytes of a lane, eight slots of two outputs at a time.

template <class T, int width>
__global__ void __launch_bounds__(threads) open_panels(const __grid_constant__ weight_only::Args p, T* values) {
  const std::int64_t count = std::int64_t{p.tiles} * p.steps * 32;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    const int lane = static_cast<int>(i % 32), step = static_cast<int>(i / 32 % p.steps);
    const int tile = static_cast<int>(i / 32 / p.steps);
    const uint4 four = __ldcs(p.codes + i);
    const unsigned w[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int c = 0; c < step_chunks(width); ++c) {
      const int chunk = step * step_chunks(width) + c;
      if (chunk >= p.chunks) break;
      const int run = chunk / p.group_chunks;
      const weight_only::Record record = weight_only::record_of(p, run, tile, lane / 4);
      const float middle = p.offset == Offset::value ? p.middles[run] : 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = tile * tile_outputs + lane / 4 + 8 * half;
        if (column >= p.n) continue;
        const float scale = record.scale(p, half);
        const unsigned zeros = record.zeros(p);
        const int zero = p.offset == Offset::value ? 1 << (width - 1) : half == 0 ? zeros & 0xffff : zeros >> 16;
        const float add = p.offset == Offset::value ? fmaf(middle, scale, -record.value(p, half)) : 0;
        alignas(16) T eight[8];
#pragma unroll
        for (int slot = 0; slot < 8; ++slot) {
          const CodePlace place = code_place(width, c, half, slot);
          const int code = static_cast<int>(w[place.word] >> place.bit & ((1u << width) - 1));
          eight[slot] = narrow<T>(fmaf(static_cast<float>(code - zero), scale, add));
        }
        T* const to = values + (std::int64_t{column} * p.chunks + chunk) * chunk_slots + lane % 4 * 8;
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(eight);
      }
    }
  }
}

template <class T>
Status open_panels_as(const weight_only::Args& p, int width, void* values, const Queue& queue) {
  const auto start = [&](auto kernel) {
    const std::int64_t count = std::int64_t{p.tiles} * p.steps * 32;
    return launch(kernel, blocks_for(count, threads, 1 << 20), threads, 0, queue, p, static_cast<T*>(values));
  };
  switch (width) {
    case 1: return start(open_panels<T, 1>);
    case 2: return start(open_panels<T, 2>);
    case 4: return start(open_panels<T, 4>);
    default: return start(open_panels<T, 8>);
  }
}

// Opening words: a thread 32 rows of a column, which are as many words as a code has bits.

struct OpenWords {
  Words words;
  std::int64_t k, n;
  Offset offset;
  Dtype scale;
  const void *scales, *zeros;
  const std::int32_t *group_of, *input_of;
};

template <class T>
__global__ void __launch_bounds__(threads) open_words(const __grid_constant__ OpenWords p, T* values) {
  constexpr int rows = 8;
  const std::int64_t count = (p.k + rows - 1) / rows * p.n;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    const std::int64_t column = i % p.n, first = i / p.n * rows;
    for (std::int64_t row = first; row < first + rows && row < p.k; ++row) {
      const Run& run = p.words.run(row);
      const float q = static_cast<float>(p.words.code(run, row, column));
      const std::int64_t at = p.group_of[row] * p.n + column;
      const float s = scale_at(p.scales, p.scale, at);
      float w = 0;
      if (p.offset == Offset::value)
        w = q * s - scale_at(p.zeros, p.scale, at);
      else if (p.offset == Offset::zero)
        w = s * (q - static_cast<float>(static_cast<const std::int32_t*>(p.zeros)[at]));
      else
        w = s * (q - static_cast<float>(1 << (run.bits - 1)));
      values[(p.input_of == nullptr ? row : p.input_of[row]) * p.n + column] = narrow<T>(w);
    }
  }
}

bool fits(const WeightOnlyPlan& p) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  return p.k >= 0 && p.n >= 0 && p.chunks >= 0 && p.n < most && p.chunks < most / chunk_slots &&
         (p.chunks == 0 || p.group_chunks > 0) && p.chunks * chunk_slots >= p.k && is_float(p.scale);
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
                const_cast<std::int32_t*>(inputs_of(plan, panels)));
}

std::int64_t weight_only_workspace(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x) {
  if (is_direct(plan, x)) return 0;
  return m * (needs_parts(x) ? 3 : 1) * plan.chunks * chunk_slots * 2;
}

Status weight_only_gemm(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x, const void* panels,
                        const FloatResults& y, void* workspace, const Queue& queue) {
  const Gpu* facts = nullptr;
  const Status found = gpu(queue.device, &facts);
  if (found != Status::ok) return found;
  if (!fits(plan) || m < 0 || facts->sm < 80) return Status::bad_shape;
  if (!is_float(x.dtype) || !is_float(y.dtype)) return Status::bad_dtype;
  if (m == 0 || plan.n == 0) return Status::ok;
  weight_only::Args p = args_of(plan, panels);
  const bool by_parts = needs_parts(x), direct = is_direct(plan, x);
  p.parts = by_parts ? 3 : 1;
  p.y_dtype = y.dtype;
  p.y_stride = y.row_stride;
  p.bias = y.bias;
  const std::int64_t slots = plan.chunks * chunk_slots, most = weight_only::most_rows(*facts) / p.parts;
  for (std::int64_t first = 0; first < m; first += most) {
    const std::int64_t rows = std::min(most, m - first);
    FloatRows from = x;
    from.data = static_cast<const char*>(x.data) + first * x.row_stride;
    p.m = static_cast<int>(rows);
    p.x = static_cast<const char*>(direct ? from.data : workspace);
    p.x_stride = direct ? x.row_stride : slots * 2;
    p.y = static_cast<char*>(y.data) + first * y.row_stride;
    if (!direct) {
      const SlotRows source = slot_rows_of(plan, rows, from, panels);
      const std::int64_t count = rows * slots;
      const Status status =
          by_parts ? launch_rows(slot_parts, count, *facts, queue, source, static_cast<__nv_bfloat16*>(workspace))
          : x.dtype == Dtype::bf16
              ? launch_rows(slot_rows<__nv_bfloat16>, count, *facts, queue, source,
                            static_cast<__nv_bfloat16*>(workspace))
              : launch_rows(slot_rows<__half>, count, *facts, queue, source, static_cast<__half*>(workspace));
      if (status != Status::ok) return status;
    }
    const bool bf16 = by_parts || x.dtype == Dtype::bf16;
    Status status = Status::ok;
    switch (plan.width) {
      case 1: status = weight_only::run_width<1>(p, bf16, *facts, queue); break;
      case 2: status = weight_only::run_width<2>(p, bf16, *facts, queue); break;
      case 4: status = weight_only::run_width<4>(p, bf16, *facts, queue); break;
      default: status = weight_only::run_width<8>(p, bf16, *facts, queue); break;
    }
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

Status weight_only_open_panels(const WeightOnlyPlan& plan, const void* panels, void* values, Dtype dtype,
                               const Queue& queue) {
  if (!fits(plan)) return Status::bad_shape;
  if (dtype != Dtype::f16 && dtype != Dtype::bf16) return Status::bad_dtype;
  const weight_only::Args p = args_of(plan, panels);
  return dtype == Dtype::f16 ? open_panels_as<__half>(p, plan.width, values, queue)
                             : open_panels_as<__nv_bfloat16>(p, plan.width, values, queue);
}

Status weight_only_slot_rows(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x, const void* panels,
                             void* values, Dtype dtype, const Queue& queue) {
  if (!fits(plan) || m < 0) return Status::bad_shape;
  if (!is_float(x.dtype) || !is_float(dtype)) return Status::bad_dtype;
  const SlotRows source = slot_rows_of(plan, m, x, panels);
  return with_float(dtype, [&](auto type) {
    using T = decltype(type);
    return launch(slot_rows<T>, blocks_for(m * source.slots, threads), threads, 0, queue, source,
                  static_cast<T*>(values));
  });
}

Status weight_only_open(const PackedWeight& w, void* values, Dtype dtype, const Queue& queue) {
  OpenWords p{};
  if (w.k < 0 || w.n < 0 || !words_of(w, &p.words)) return Status::bad_shape;
  if (!is_float(dtype) || !is_float(w.scale_dtype)) return Status::bad_dtype;
  p.k = w.k;
  p.n = w.n;
  p.offset = w.offset;
  p.scale = w.scale_dtype;
  p.scales = w.scales;
  p.zeros = w.zeros;
  p.group_of = w.group_of;
  p.input_of = w.input_of;
  return with_float(dtype, [&](auto type) {
    using T = decltype(type);
    return launch(open_words<T>, blocks_for((w.k + 7) / 8 * w.n, threads, 1 << 20), threads, 0, queue, p,
                  static_cast<T*>(values));
  });
}

}  // namespace bie::kernels::cuda
