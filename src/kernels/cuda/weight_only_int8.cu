// Products of activations of 8 bits with panels of codes: rows are quantised, then multiplied; few rows at once.
#include "kernels/cuda/weight_only_int8.h"

#include <algorithm>

#include "bie/kernels/weight_only_q8.h"

namespace bie::kernels::cuda::weight_only {
namespace {

constexpr int threads = 256;

/// `lanes` threads per row and run; the codes [m][slots], the scales [runs][scale_rows].
template <int lanes>
__global__ void __launch_bounds__(threads)
    quantise_rows(const __grid_constant__ SlotRows rows, int scale_rows, char* codes, RowScale* scales) {
  let_next_start();
  wait_for_previous_kernel();
  const std::int64_t item = min((std::int64_t{blockIdx.x} * threads + threadIdx.x) / lanes, rows.m * rows.runs - 1);
  const std::int64_t row = item / rows.runs;
  const int run = static_cast<int>(item % rows.runs), lane = threadIdx.x % lanes;
  auto* const to = reinterpret_cast<unsigned*>(codes + row * rows.slots + std::int64_t{run} * rows.run_slots);
  // Threads behind the last item repeat it.
  const RowScale scale = quantise_run<lanes>(rows, row, run, lane, to);
  if (lane == 0) scales[std::int64_t{run} * scale_rows + row] = scale;
}

/// Fewer rows are not worth the warpgroups' products.
constexpr int least_wide_rows = 33;
/// Rows of scales are padded to those of any tile.
constexpr std::int64_t scale_rows_of(std::int64_t m) { return over(m, 128) * 128; }

std::int64_t scales_at(const WeightOnlyPlan& plan, std::int64_t m) { return m * plan.chunks * chunk_slots; }

Status quantise(const SlotRows& rows, int scale_rows, char* codes, RowScale* scales, const Queue& queue) {
  const auto with = [&](auto kernel, int lanes) {
    return launch_early(kernel, over(rows.m * rows.runs * lanes, threads), threads, 0, queue, rows, scale_rows, codes,
                        scales);
  };
  if (rows.run_slots <= 32) return with(quantise_rows<8>, 8);
  return rows.run_slots <= 64 ? with(quantise_rows<16>, 16) : with(quantise_rows<32>, 32);
}

Status run_tile(int width, const Int8Args& p, const Gpu& gpu, const Queue& queue) {
  switch (width) {
    case 1: return run_int8_tile<1>(p, gpu, queue);
    case 2: return run_int8_tile<2>(p, gpu, queue);
    case 4: return run_int8_tile<4>(p, gpu, queue);
    default: return run_int8_tile<8>(p, gpu, queue);
  }
}

Status run_wide(int width, Int8WideArgs& args, const Gpu& gpu, const Queue& queue) {
  switch (width) {
    case 1: return run_int8_wide<1>(args, gpu, queue);
    case 2: return run_int8_wide<2>(args, gpu, queue);
    case 4: return run_int8_wide<4>(args, gpu, queue);
    default: return run_int8_wide<8>(args, gpu, queue);
  }
}

}  // namespace

std::int64_t int8_workspace(const WeightOnlyPlan& plan, std::int64_t m) {
  return scales_at(plan, m) + weight_only_runs(plan) * scale_rows_of(m) * static_cast<std::int64_t>(sizeof(RowScale));
}

Status int8_gemm(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x, const void* panels,
                 const FloatResults& y, void* workspace, const Gpu& gpu, const Queue& queue) {
  if (std::min(plan.group_chunks * chunk_slots, plan.k) > most_q8_rows) return Status::too_deep;
  Int8WideArgs args{};
  Int8Args& p = args.p;
  static_cast<Args&>(p) = args_of(plan, panels);
  p.group_chunks = std::max(1, p.group_chunks);
  p.parts = 1;
  p.y = static_cast<char*>(y.data);
  p.y_dtype = y.dtype;
  p.y_stride = y.row_stride;
  p.bias = y.bias;
  auto* const codes = static_cast<char*>(workspace);
  auto* const scales = reinterpret_cast<RowScale*>(codes + scales_at(plan, m));
  p.x = codes;
  p.x_stride = plan.chunks * chunk_slots;
  p.row_scales = scales;
  p.scale_rows = static_cast<int>(scale_rows_of(m));
  Status status =
      p.runs == 0 ? Status::ok : quantise(slot_rows_of(plan, m, x, panels), p.scale_rows, codes, scales, queue);
  if (status != Status::ok) return status;
  if (runs_hopper_code(gpu) && m >= least_wide_rows && p.runs > 0) {
    p.m = static_cast<int>(m);
    return run_wide(plan.width, args, gpu, queue);
  }
  const int most = std::min(most_rows(gpu), 32);
  for (std::int64_t first = 0; first < m && status == Status::ok; first += most) {
    p.m = static_cast<int>(std::min<std::int64_t>(most, m - first));
    p.first_row = static_cast<int>(first);
    p.x = codes + first * p.x_stride;
    p.y = static_cast<char*>(y.data) + first * y.row_stride;
    status = run_tile(plan.width, p, gpu, queue);
  }
  return status;
}

}  // namespace bie::kernels::cuda::weight_only
