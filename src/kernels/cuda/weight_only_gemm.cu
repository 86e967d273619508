// Products with panels: which tile, or opening for cuBLAS; the rows become what the tile of few rows reads, where they
// are not.
#include <algorithm>

#include "kernels/cuda/weight_only_float_tile.cuh"
#include "kernels/cuda/weight_only_int8.h"
#include "kernels/cuda/weight_only_wide.h"

namespace bie::kernels::cuda {
namespace {

constexpr int threads = 256;

template <class T>
__global__ void __launch_bounds__(threads) slot_rows(const __grid_constant__ weight_only::SlotRows rows, T* out) {
  let_next_start();
  wait_for_previous_kernel();
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < rows.m * rows.slots;
       i += std::int64_t{gridDim.x} * threads)
    out[i] = narrow<T>(rows.at(i / rows.slots, i % rows.slots));
}

/// The three parts of float32, one after another [3][m][slots].
__global__ void __launch_bounds__(threads)
    slot_parts(const __grid_constant__ weight_only::SlotRows rows, __nv_bfloat16* out) {
  let_next_start();
  wait_for_previous_kernel();
  const std::int64_t count = rows.m * rows.slots;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * threads) {
    float rest = rows.at(i / rows.slots, i % rows.slots);
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

/// Fewer rows are faster with scales of float32.
constexpr std::int64_t least_wide_rows = 33;

/// The tile for so many rows, and about how long it takes on an H100 (docs/measured/gpu-weight-only.md): waves of
/// blocks, each a step of so many slots after another.
struct WideChoice {
  weight_only::WideTile tile;
  double us;
};
WideChoice wide_choice(const WeightOnlyPlan& plan, std::int64_t m, const Gpu& gpu) {
  using weight_only::WideTile;
  const auto of = [&](WideTile tile, std::int64_t rows, std::int64_t outputs, std::int64_t slots, double step_us,
                      double wave_us) {
    const std::int64_t waves = over(over(m, rows) * over(plan.n, outputs), gpu.multiprocessors);
    const double a_wave_us = static_cast<double>(over(plan.k, slots)) * step_us + wave_us;
    return WideChoice{tile, static_cast<double>(waves) * a_wave_us};
  };
  const WideChoice few =
      m <= 64 ? of(WideTile::rows64, 64, 64, 256, 0.56, 3.4) : of(WideTile::rows128, 128, 64, 192, 0.6, 3.2);
  const WideChoice many = of(WideTile::rows256, 256, 128, 64, 0.67, 3.8);
  return few.us <= many.us ? few : many;
}
/// Estimated microseconds of the other way: dequantize the weight to memory and multiply with cuBLAS.
double opened_us(const WeightOnlyPlan& plan, std::int64_t m) {
  constexpr double start_us = 5, weights_a_us = 0.9e6, products_a_us = 375e6;
  const double weights = static_cast<double>(plan.n) * static_cast<double>(plan.k);
  return start_us + weights / weights_a_us + static_cast<double>(m) * weights / products_a_us;
}

Status run_wide(const weight_only::Args& p, const WeightOnlyPlan& plan, bool bf16, const Gpu& gpu, const Queue& queue) {
  weight_only::WideArgs args{{}, p, 0, wide_choice(plan, p.m, gpu).tile};
  switch (plan.width) {
    case 1: return weight_only::run_wide<1>(args, bf16, queue);
    case 2: return weight_only::run_wide<2>(args, bf16, queue);
    case 4: return weight_only::run_wide<4>(args, bf16, queue);
    default: return weight_only::run_wide<8>(args, bf16, queue);
  }
}

template <class Kernel, class... A>
Status launch_rows(Kernel kernel, std::int64_t count, const Queue& queue, const A&... arguments) {
  return launch_early(kernel, blocks_for(count, threads), threads, 0, queue, arguments...);
}

}  // namespace

bool weight_only_rounds(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x, const Gpu& gpu) {
  if (plan.int8 || !runs_hopper_code(gpu) || m < least_wide_rows || plan.k == 0 || plan.scale != x.dtype ||
      !is_direct(plan, x))
    return false;
  return m <= 64 || wide_choice(plan, m, gpu).us < opened_us(plan, m);
}

std::int64_t weight_only_workspace(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x) {
  if (plan.int8) return weight_only::int8_workspace(plan, m);
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
  if (plan.int8) return weight_only::int8_gemm(plan, m, x, panels, y, workspace, *facts, queue);
  weight_only::Args p = args_of(plan, panels);
  const bool by_parts = needs_parts(x), direct = is_direct(plan, x);
  p.parts = by_parts ? 3 : 1;
  p.y_dtype = y.dtype;
  p.y_stride = y.row_stride;
  p.bias = y.bias;
  if (weight_only_rounds(plan, m, x, *facts)) {
    p.m = static_cast<int>(m);
    p.x = static_cast<const char*>(x.data);
    p.x_stride = x.row_stride;
    p.y = static_cast<char*>(y.data);
    return run_wide(p, plan, x.dtype == Dtype::bf16, *facts, queue);
  }
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
      const weight_only::SlotRows source = weight_only::slot_rows_of(plan, rows, from, panels);
      const std::int64_t count = rows * slots;
      const Status status =
          by_parts ? launch_rows(slot_parts, count, queue, source, static_cast<__nv_bfloat16*>(workspace))
          : x.dtype == Dtype::bf16
              ? launch_rows(slot_rows<__nv_bfloat16>, count, queue, source, static_cast<__nv_bfloat16*>(workspace))
              : launch_rows(slot_rows<__half>, count, queue, source, static_cast<__half*>(workspace));
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

Status weight_only_slot_rows(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x, const void* panels,
                             void* values, Dtype dtype, const Queue& queue) {
  if (!fits(plan) || plan.int8 || m < 0) return Status::bad_shape;
  if (!is_float(x.dtype) || !is_float(dtype)) return Status::bad_dtype;
  const weight_only::SlotRows source = weight_only::slot_rows_of(plan, m, x, panels);
  return with_float(dtype, [&](auto type) {
    using T = decltype(type);
    return launch(slot_rows<T>, blocks_for(m * source.slots, threads), threads, 0, queue, source,
                  static_cast<T*>(values));
  });
}

}  // namespace bie::kernels::cuda
