// Weights of packed codes as floats, from their panels and from their words.
#include "kernels/cuda/tile_args.cuh"
#include "kernels/cuda/weight_words.cuh"

namespace bie::kernels::cuda {
namespace {

constexpr int threads = 256;

// Opening panels: a thread the 16 bytes of a lane, eight slots of two outputs at a time, which its quad turns to
// neighbours. Writing half lines of the cache takes twice as long for some rows (docs/measured/gpu-weight-only.md).

/// Which slots hold a row: the first k, or those with an input.
struct Slots {
  std::int64_t k;
  const std::int32_t* inputs;
  __device__ bool has(std::int64_t slot) const { return inputs != nullptr ? inputs[slot] >= 0 : slot < k; }
};

/// Eight neighbours of a row in chunk c of a step, those of lane t of a quad from 8 t on, of its lower or upper output.
/// All lanes of a quad come.
template <class T, int width>
__device__ uint4 eight_values(const weight_only::Args& p, const Slots& slots, const uint4& codes, int c, int half,
                              int chunk, int lane, const weight_only::Record& record, float middle) {
  const unsigned w[4] = {codes.x, codes.y, codes.z, codes.w};
  float scales[2], values[2] = {};
  record.scales(p, scales);
  if (p.offset == Offset::value) record.values(p, values);
  const unsigned zeros = record.zeros(p);
  const int zero = p.offset == Offset::value ? 1 << (width - 1) : half == 0 ? zeros & 0xffff : zeros >> 16;
  const float scale = scales[half], add = p.offset == Offset::value ? fmaf(middle, scale, -values[half]) : 0;
  const std::int64_t first = std::int64_t{chunk} * chunk_slots;
  alignas(16) T eight[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const CodePlace place = code_place(width, c, half, i);
    const int code = static_cast<int>(w[place.word] >> place.bit & ((1u << width) - 1));
    const bool has = slots.has(first + lane_slot(/*int8=*/false, lane % 4, i));
    eight[i] = narrow<T>(has ? fmaf(static_cast<float>(code - zero), scale, add) : 0.0f);
  }
  const uint4& own = *reinterpret_cast<const uint4*>(eight);
  return transposed_quad(own.x, own.y, own.z, own.w);
}

__device__ uint4 chosen(bool first, const uint4& a, const uint4& b) {
  return {first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w};
}

template <class T, int width>
__global__ void __launch_bounds__(threads)
    open_panels(const __grid_constant__ weight_only::Args p, const Slots slots, T* values) {
  const std::int64_t count = std::int64_t{p.tiles} * p.steps * 32;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    const int lane = static_cast<int>(i % 32), step = static_cast<int>(i / 32 % p.steps);
    const int tile = static_cast<int>(i / 32 / p.steps);
    const uint4 codes = __ldcs(p.codes + i);
    const auto values_of = [&](int c, int half) {
      const int chunk = step * step_chunks(width) + c;
      if (chunk >= p.chunks) return make_uint4(0, 0, 0, 0);
      const int run = chunk / p.group_chunks;
      const weight_only::Record record = weight_only::record_of(p, run, tile, lane / 4);
      const float middle = p.offset == Offset::value ? p.middles[run] : 0;
      return eight_values<T, width>(p, slots, codes, c, half, chunk, lane, record, middle);
    };
    const auto put = [&](int c, int half, int row, const uint4& eight) {
      const int chunk = step * step_chunks(width) + c, column = tile * tile_outputs + row + 8 * half;
      if (chunk >= p.chunks || column >= p.n) return;
      T* const to = values + (std::int64_t{column} * p.chunks + chunk) * chunk_slots + lane % 4 * 8;
      *reinterpret_cast<uint4*>(to) = eight;
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (width == 8) {
        put(0, half, lane / 4, values_of(0, half));
      } else {
        // Two chunks are a line of 128 bytes, which lanes of two rows write together.
        const bool odd = lane / 4 % 2 == 1;
#pragma unroll
        for (int c = 0; c < step_chunks(width); c += 2) {
          const uint4 first = values_of(c, half), second = values_of(c + 1, half);
          const uint4 own = chosen(odd, second, first), given = chosen(odd, first, second);
          const uint4 got = {__shfl_xor_sync(~0u, given.x, 4), __shfl_xor_sync(~0u, given.y, 4),
                             __shfl_xor_sync(~0u, given.z, 4), __shfl_xor_sync(~0u, given.w, 4)};
          put(c + odd, half, lane / 8 * 2, chosen(odd, got, own));
          put(c + odd, half, lane / 8 * 2 + 1, chosen(odd, own, got));
        }
      }
    }
  }
}

template <class T>
Status open_panels_as(const weight_only::Args& p, const Slots& slots, int width, void* values, const Queue& queue) {
  const auto start = [&](auto kernel) {
    const std::int64_t count = std::int64_t{p.tiles} * p.steps * 32;
    return launch(kernel, blocks_for(count, threads, 1 << 20), threads, 0, queue, p, slots, static_cast<T*>(values));
  };
  switch (width) {
    case 1: return start(open_panels<T, 1>);
    case 2: return start(open_panels<T, 2>);
    case 4: return start(open_panels<T, 4>);
    default: return start(open_panels<T, 8>);
  }
}

// Opening words: a thread eight rows of a column.

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
      const float s = float_at(p.scales, p.scale, at);
      float w = 0;
      if (p.offset == Offset::value)
        w = q * s - float_at(p.zeros, p.scale, at);
      else if (p.offset == Offset::zero)
        w = s * (q - static_cast<float>(static_cast<const std::int32_t*>(p.zeros)[at]));
      else
        w = s * (q - static_cast<float>(1 << (run.bits - 1)));
      values[(p.input_of == nullptr ? row : p.input_of[row]) * p.n + column] = narrow<T>(w);
    }
  }
}

}  // namespace

Status weight_only_open_panels(const WeightOnlyPlan& plan, const void* panels, void* values, Dtype dtype,
                               const Queue& queue) {
  if (!fits(plan) || plan.int8) return Status::bad_shape;
  if (dtype != Dtype::f16 && dtype != Dtype::bf16) return Status::bad_dtype;
  const weight_only::Args p = args_of(plan, panels);
  const Slots slots = {plan.k, inputs_of(plan, panels)};
  return dtype == Dtype::f16 ? open_panels_as<__half>(p, slots, plan.width, values, queue)
                             : open_panels_as<__nv_bfloat16>(p, slots, plan.width, values, queue);
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
