#include "bie/kernels/cuda/input_grad.h"

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/input_rules.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bie::kernels::cuda {
namespace {

struct Terms {
  double sum;
  __device__ static Terms none() { return {0}; }
  __device__ void add(const Terms& other) { sum += other.sum; }
};

/// A grid of strips of columns and ranges of rows: a warp takes four columns per lane, the block's warps take rows in
/// turn, and each block leaves its sums. The grid depends on the matrix alone, and so does the order of every sum.
struct Strips {
  static constexpr int width = 128, warps = 8, at_once = 2;  ///< at_once: rows that a warp has under way
  static constexpr int blocks_at_once = 4;                   ///< on a multiprocessor
  static constexpr std::int64_t most_blocks = 1024;

  int rows;
  std::int64_t columns;
  std::int64_t count;  ///< of elements: the last row may be shorter
  bool aligned;        ///< fours of every row begin on a boundary of four

  __host__ __device__ std::int64_t strips() const { return (columns + width - 1) / width; }
  __host__ __device__ int ranges() const {
    const std::int64_t wanted = most_blocks / strips(), most = rows / (warps * at_once);
    const std::int64_t fewer = wanted < most ? wanted : most;
    return fewer < 1 ? 1 : static_cast<int>(fewer);
  }
  __host__ __device__ int rows_a_range() const { return (rows + ranges() - 1) / ranges(); }
  __host__ __device__ std::int64_t blocks() const { return strips() * ranges(); }
};

/// Without a bias the columns mean nothing, and the elements are rows of one strip.
Strips grid_of(const InputPass& pass) {
  const bool columns_matter = pass.bias != nullptr || pass.grad_bias != nullptr;
  const std::int64_t count = pass.rows * pass.columns, columns = columns_matter ? pass.columns : Strips::width;
  const std::int64_t rows = columns_matter ? pass.rows : (count + columns - 1) / columns;
  const auto on_four = [](const void* data, Dtype dtype) {
    return reinterpret_cast<std::uintptr_t>(data) %
               (dtype == Dtype::f32 ? sizeof(Four<float>) : sizeof(Four<__half>)) ==
           0;
  };
  const bool aligned = columns % 4 == 0 && on_four(pass.up, Dtype::f32) && on_four(pass.x, pass.x_dtype) &&
                       on_four(pass.grad_x, pass.x_dtype) && begins_on_four(pass.codes);
  return {static_cast<int>(rows), columns, count, aligned};
}

InputPartials partials_of(const Strips& grid, void* workspace) {
  return input_partials(workspace, grid.blocks(), grid.ranges(), grid.columns);
}

/// A thread's columns of the rows of a block.
struct Strip {
  std::int64_t left;      ///< the first column
  int range, first, end;  ///< rows: every Strips::warps'th from `first` on
  int columns;            ///< from `left` on
  __device__ explicit Strip(const Strips& grid) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    left = blockIdx.x % grid.strips() * Strips::width + 4 * lane;
    range = static_cast<int>(blockIdx.x / grid.strips());
    columns = static_cast<int>(max(min(grid.columns - left, std::int64_t{4}), std::int64_t{0}));
    first = range * grid.rows_a_range() + warp;
    end = columns > 0 ? min((range + 1) * grid.rows_a_range(), grid.rows) : 0;
  }
};

/// Writes the strip's gradients and codes, and adds them to the column's sums and the terms.
template <class X, bool in_parts, class Estimator>
__device__ void pass_strip(const InputPass& pass, const Strips& grid, const Strip& strip, const Estimator& estimator,
                           Four<float>& sums, double& terms) {
  constexpr int warps = Strips::warps, at_once = Strips::at_once;
  const float gain = value_of(pass.gain);
  const X* const x = static_cast<const X*>(pass.x);
  X* const grad_x = static_cast<X*>(pass.grad_x);
  Four<float> bias{};
  if (pass.bias != nullptr) bias = load_some(pass.bias + strip.left, /*aligned=*/false, strip.columns);
  const std::int64_t step = warps * grid.columns;
  std::int64_t at = strip.first * grid.columns + strip.left;
  const auto valid_at = [&](int its_row, std::int64_t here) {
    return its_row < strip.end ? static_cast<int>(min(grid.count - here, std::int64_t{strip.columns})) : 0;
  };
  for (int row = strip.first; row < strip.end; row += warps * at_once, at += at_once * step) {
    Four<X> from[at_once];
    Four<float> up[at_once];
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      const std::int64_t here = at + r * step;
      const int valid = valid_at(row + r * warps, here);
      from[r] = load_some(x + here, grid.aligned, valid);
      up[r] = load_some(pass.up + here, grid.aligned, valid);
    }
    if constexpr (in_parts) {
      for (int part = 1; part < pass.up_parts; ++part) {
        const float* const its = pass.up + part * pass.rows * pass.columns;
#pragma unroll
        for (int r = 0; r < at_once; ++r) {
          const std::int64_t here = at + r * step;
          const Four<float> next = load_some(its + here, grid.aligned, valid_at(row + r * warps, here));
#pragma unroll
          for (int j = 0; j < 4; ++j) up[r].at[j] += next.at[j];
        }
      }
    }
    Four<X> grads[at_once];
    Four<std::int8_t> codes[at_once];
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      Four<float> grad, term;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        // Channels out of range are loaded as 0, so their gradients and terms are 0 too.
        const Estimate e = estimator(widen(from[r].at[j]) + bias.at[j], up[r].at[j] * gain);
        sums.at[j] += e.grad;
        grad.at[j] = e.grad;
        term.at[j] = e.term;
        codes[r].at[j] = narrow<std::int8_t>(e.code);
      }
      terms += (term.at[0] + term.at[1]) + (term.at[2] + term.at[3]);
      grads[r] = narrow_four<X>(grad);
    }
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      const std::int64_t here = at + r * step;
      const int valid = valid_at(row + r * warps, here);
      store_some(grad_x + here, grid.aligned, valid, grads[r]);
      if (pass.codes != nullptr) store_some(pass.codes + here, grid.aligned, valid, codes[r]);
    }
  }
}

template <class X, bool in_parts>
__global__ void __launch_bounds__(32 * Strips::warps, Strips::blocks_at_once - (in_parts ? 1 : 0))
    input_pass(const InputPass pass, const InputRule rule, const Scalar scale_a, const Strips grid,
               const InputPartials partials) {
  constexpr int warps = Strips::warps;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Strip strip(grid);
  Four<float> sums{};
  double terms = 0;
  with_estimator(rule, value_of(scale_a),
                 [&](const auto& estimator) { pass_strip<X, in_parts>(pass, grid, strip, estimator, sums, terms); });

  __shared__ alignas(sizeof(Four<float>)) float of_warps[warps][Strips::width];
  if (pass.grad_bias != nullptr) {
    *reinterpret_cast<Four<float>*>(&of_warps[warp][4 * lane]) = sums;
    __syncthreads();
    const std::int64_t mine = blockIdx.x % grid.strips() * Strips::width + threadIdx.x;
    if (threadIdx.x < Strips::width && mine < pass.columns) {
      float sum = 0;
      for (int w = 0; w < warps; ++w) sum += of_warps[w][threadIdx.x];
      partials.sums[strip.range * pass.columns + mine] = sum;
    }
  }
  const Terms total = of_block(Terms{terms});
  if (threadIdx.x == 0) partials.terms[blockIdx.x] = total.sum;
}

/// Block 0 finishes the gradient of the scale, the others finish that of the bias, 32 columns each.
__global__ void __launch_bounds__(total_threads) finish_input_pass(const InputPass pass, const double denominator,
                                                                   const Scalar scale_a, const InputPartials partials) {
  if (blockIdx.x == 0) {
    Terms mine = Terms::none();
    for (std::int64_t i = threadIdx.x; i < partials.term_count; i += total_threads) mine.sum += partials.terms[i];
    mine = of_block(mine);
    if (threadIdx.x == 0) *pass.grad_scale = value_of(scale_a) == 0 ? 0.0f : static_cast<float>(mine.sum / denominator);
    return;
  }
  constexpr int slices = total_threads / 32;
  const int lane = threadIdx.x % 32, slice = threadIdx.x / 32;
  const std::int64_t column = std::int64_t{blockIdx.x - 1} * 32 + lane;
  __shared__ double of_slices[slices][32];
  double sum = 0;
  if (column < partials.columns)
    for (int range = slice; range < partials.ranges; range += slices)
      sum += static_cast<double>(partials.sums[range * partials.columns + column]);
  of_slices[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || column >= partials.columns) return;
  for (int i = 1; i < slices; ++i) sum += of_slices[i][lane];
  pass.grad_bias[column] = static_cast<float>(sum);
}

}  // namespace

std::int64_t input_pass_bytes(const InputPass& pass) {
  const Strips grid = grid_of(pass);
  return input_partial_bytes(pass, grid.blocks(), grid.ranges(), grid.columns);
}

Status input_grads(const InputPass& pass, const InputRule& rule, const Scalar& scale_a, void* workspace,
                   const Queue& queue) {
  constexpr std::int64_t most_rows = INT32_MAX - Strips::most_blocks;
  if (pass.rows > most_rows || pass.rows * pass.columns / Strips::width >= most_rows) return Status::bad_shape;
  const Strips grid = grid_of(pass);
  const InputPartials partials = partials_of(grid, workspace);
  const Status status = with_float(pass.x_dtype, [&](auto element) {
    using X = decltype(element);
    return launch(pass.up_parts > 1 ? input_pass<X, true> : input_pass<X, false>, grid.blocks(), 32 * Strips::warps, 0,
                  queue, pass, rule, scale_a, grid, partials);
  });
  if (status != Status::ok) return status;
  return finish_input_grads(pass, rule, scale_a, partials, queue);
}

Status finish_input_grads(const InputPass& pass, const InputRule& rule, const Scalar& scale_a,
                          const InputPartials& partials, const Queue& queue) {
  const std::int64_t blocks = pass.grad_bias == nullptr ? 1 : 1 + (partials.columns + 31) / 32;
  return launch(finish_input_pass, blocks, total_threads, 0, queue, pass, rule.step.denominator, scale_a, partials);
}

}  // namespace bie::kernels::cuda
