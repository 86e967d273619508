#include "bie/kernels/cuda/mixed_product.h"

#include <algorithm>

#include "bie/kernels/cuda/quantize.h"
#include "kernels/cuda/extremes.cuh"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/fours.cuh"
#include "kernels/cuda/input_rules.cuh"
#include "kernels/cuda/mixed_args.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_map.h"

namespace bie::kernels::cuda {
namespace {

using mixed::Args;
using mixed::Reads;
using Kind = MixedProduct::Kind;

/// A product as the kernel sees it.
struct Sizes {
  std::int64_t rows, column_taps, tap_columns, depth_taps, tap_depth;
  std::int64_t units() const { return column_taps * ceil_div(tap_columns, mixed::unit); }
  std::int64_t stages() const { return depth_taps * ceil_div(tap_depth, mixed::depth); }
  std::int64_t columns() const { return column_taps * tap_columns; }
  static std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
};

Sizes sizes_of(const MixedProduct& p) {
  const Conv2dShape& s = p.shape;
  switch (p.kind) {
    case Kind::input_grad: return {s.batch * s.in_h * s.in_w, 1, s.in_c, s.taps(), s.out_c};
    case Kind::weight_grad: return {s.out_c, s.taps(), s.in_c, 1, s.batch * s.out_h() * s.out_w()};
    default: return {p.rows, 1, p.columns, 1, p.depth};
  }
}

/// Whether neighbouring units lie side by side in memory.
bool reads_wide(const Sizes& s) {
  return s.units() > 1 && (s.column_taps == 1 || s.tap_columns % (2 * mixed::unit) == 0);
}

bool transposed(Kind kind) { return kind == Kind::transposed_times || kind == Kind::weight_grad; }

/// The windows that are read of a convolution: of the image, or of the gradient by the mirrored kernel.
WindowMap windows_of(const MixedProduct& p) {
  const Conv2dShape& s = p.shape;
  const auto cut = [](std::int64_t value) { return static_cast<int>(value); };
  const int kernel_h = cut(s.kernel_h), kernel_w = cut(s.kernel_w), dil_h = cut(s.dil_h), dil_w = cut(s.dil_w);
  if (p.kind == Kind::weight_grad)
    return {s.batch,         s.in_h,          s.in_w,       s.in_c,       kernel_h, kernel_w,
            cut(s.stride_h), cut(s.stride_w), cut(s.pad_h), cut(s.pad_w), dil_h,    dil_w};
  return {s.batch,
          s.out_h(),
          s.out_w(),
          s.out_c * 2,
          kernel_h,
          kernel_w,
          1,
          1,
          cut(dil_h * (s.kernel_h - 1) - s.pad_h),
          cut(dil_w * (s.kernel_w - 1) - s.pad_w),
          dil_h,
          dil_w};
}

/// A tile, and the parts into which the depth is cut so that small results use the whole GPU.
struct Plan {
  int rows;
  bool shared;
  int splits;
  int units() const { return mixed::units_of(shared); }
};

/// The cheapest plan, by the measured throughput of a multiprocessor per cycle.
Plan plan_of(const Gpu& gpu, const MixedProduct& p) {
  constexpr double bytes_in = 26, bytes_out = 24;     // a cycle, where all multiprocessors read and write
  constexpr double tile_start = 2000, launch = 4000;  // cycles
  const Sizes s = sizes_of(p);
  const double result = 4.0 * static_cast<double>(s.rows) * static_cast<double>(s.columns());
  const int parts = p.floats.count;
  const bool one_unit = s.units() == 1 && !transposed(p.kind);
  Plan best{};
  double least = 0;
  for (const int rows : {64, 128, 256}) {
    if (rows * parts > 384) continue;
    const bool shared = one_unit && rows * parts >= 256;
    const int units = mixed::units_of(shared);
    const double stage =
        std::max(2.0 * rows * parts * units, (units * mixed::unit_bytes + rows * mixed::depth * 2 * parts) / bytes_in);
    const std::int64_t tiles = Sizes::ceil_div(s.units(), units) * Sizes::ceil_div(s.rows, rows);
    const std::int64_t most_splits = std::clamp<std::int64_t>(s.stages() / 4, 1, 64);
    for (int fill = 0; fill <= 4; ++fill) {  // as many parts as fill the GPU so many times
      const std::int64_t splits = std::clamp<std::int64_t>(fill * gpu.multiprocessors / tiles, 1, most_splits);
      const auto waves = static_cast<double>(Sizes::ceil_div(tiles * splits, gpu.multiprocessors));
      double cycles = waves * (static_cast<double>(Sizes::ceil_div(s.stages(), splits)) * stage + tile_start +
                               rows * units * mixed::unit * 4 / bytes_out);
      if (splits > 1) cycles += launch + result * static_cast<double>(splits + 1) / (bytes_out * gpu.multiprocessors);
      if (least != 0 && cycles >= least) continue;
      least = cycles;
      best = {rows, shared, static_cast<int>(splits)};
    }
  }
  return best;
}

struct Sum {
  const float* parts;
  std::int64_t stride;
  int count;
  Scalar gain;
  float* out;

  __device__ Four<float> operator()(std::int64_t first, std::int64_t size) const {
    const float by = value_of(gain);
    Four<float> sum = load_four(parts, first, size);
    for (int i = 1; i < count; ++i) {
      const Four<float> next = load_four(parts + i * stride, first, size);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum.at[j] += next.at[j];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) sum.at[j] *= by;
    store_four(out, first, size, sum);
    return sum;
  }
};

/// Adds the splits and leaves their totals. `stride` is a multiple of four.
struct SumTotal {
  Sum sum;
  __device__ void operator()(std::int64_t four, Extremes& total) const {
    const Four<float> found = sum(4 * four, sum.stride);
#pragma unroll
    for (int j = 0; j < 4; ++j) total.add(Extremes::of(found.at[j]));
  }
};
/// Blocks that leave a total each.
int sum_blocks(std::int64_t count) { return static_cast<int>(blocks_for(count / 4, total_threads, most_partials)); }

struct Split {
  const float* x;
  __nv_bfloat16* parts[3];

  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    Four<float> rest = load_four(x, first, count);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      Four<__nv_bfloat16> part;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        part.at[j] = narrow<__nv_bfloat16>(rest.at[j]);
        rest.at[j] -= widen(part.at[j]);
      }
      store_four(parts[i], first, count, part);
    }
  }
};

bool on_chunk(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

Status make_maps(const MixedProduct& p, const Plan& plan, const Sizes& s, Args* args) {
  constexpr int depth = mixed::depth, unit = mixed::unit;
  const Box codes{reads_wide(s) ? 2 * unit : unit, depth};
  Status status;
  if (p.kind == Kind::weight_grad)
    status = make_window_map(p.codes, windows_of(p), 1, codes, &args->codes);
  else
    status = make_tensor_map(p.codes, s.tap_depth, s.depth_taps * s.tap_columns, 1, s.depth_taps * s.tap_columns, codes,
                             &args->codes);
  for (int i = 0; i < p.floats.count && status == Status::ok; ++i) {
    const void* const data = p.floats.data[i];
    CUtensorMap* const map = args->parts + i;
    if (transposed(p.kind))
      status = make_tensor_map(data, s.tap_depth, s.rows, 2, s.rows * 2, {unit, depth}, map);
    else if (p.kind == Kind::input_grad)
      status = make_window_map(data, windows_of(p), 2, {depth, plan.rows}, map);
    else
      status = make_tensor_map(data, s.rows, s.tap_depth, 2, s.tap_depth * 2, {depth, plan.rows}, map);
  }
  return status;
}

}  // namespace

Status split_floats(const float* x, std::int64_t count, void* const (&parts)[3], const Queue& queue) {
  const auto part = [&](int i) { return static_cast<__nv_bfloat16*>(parts[i]); };
  return for_fours(count, Split{x, {part(0), part(1), part(2)}}, queue);
}

namespace {

bool has_kernel(const Gpu& gpu, const MixedProduct& p) {
  constexpr std::int64_t most = INT32_MAX / 2;
  const Conv2dShape& c = p.shape;
  const Sizes s = sizes_of(p);
  const bool convolves = p.kind == Kind::input_grad || p.kind == Kind::weight_grad;
  if (gpu.sm != 90 || (p.signs && transposed(p.kind))) return false;
  for (const std::int64_t size : {s.rows, s.columns(), s.depth_taps * s.tap_columns, s.depth_taps * s.tap_depth})
    if (size <= 0 || size > most) return false;
  if (convolves) {
    if (c.groups != 1 || (p.kind == Kind::input_grad && (c.stride_h != 1 || c.stride_w != 1))) return false;
    for (const std::int64_t size : {c.in_h + 2 * c.pad_h, c.in_w + 2 * c.pad_w, c.dil_h * c.kernel_h,
                                    c.dil_w * c.kernel_w, c.batch * c.in_h * c.in_w, c.batch * c.out_h() * c.out_w()})
      if (size > most) return false;
    if (!maps_windows(windows_of(p))) return false;
  }
  const std::int64_t float_row = p.kind == Kind::times ? s.tap_depth : convolves ? c.out_c : s.rows;
  bool aligned = s.tap_columns % 16 == 0 && float_row % 8 == 0 && on_chunk(p.codes) && on_chunk(p.out);
  for (int i = 0; i < p.floats.count; ++i) aligned = aligned && on_chunk(p.floats.data[i]);
  return aligned;
}

std::int64_t tiles_of(const Sizes& s, const Plan& plan) {
  return Sizes::ceil_div(s.units(), plan.units()) * Sizes::ceil_div(s.rows, plan.rows) * plan.splits;
}
int blocks_of(const Gpu& gpu, const Sizes& s, const Plan& plan) {
  return static_cast<int>(std::min<std::int64_t>(tiles_of(s, plan), gpu.multiprocessors));
}
MixedNeeds needs_of(const Gpu& gpu, const Sizes& s, const Plan& plan) {
  const std::int64_t count = s.rows * s.columns();
  if (plan.splits > 1) return {plan.splits * count * static_cast<std::int64_t>(sizeof(float)), sum_blocks(count)};
  const int totals = blocks_of(gpu, s, plan) * mixed::consumer_warps;
  return {0, totals * static_cast<std::int64_t>(sizeof(Extremes)) + result_bytes <= reduction_bytes ? totals : 0};
}

/// Epilogue of a product that computes an activation's gradients, with the workspace parts that its tiles fill.
struct Gradients {
  const InputPass& pass;
  const InputRule& rule;
  const Scalar& scale_a;
  InputPartials partials;
};

InputPartials partials_of(const Gpu& gpu, const Sizes& s, const Plan& plan, void* workspace) {
  const int right = mixed::rows_of_warpgroup(plan.rows, plan.shared);
  const std::int64_t ranges = Sizes::ceil_div(s.rows, plan.rows) * (plan.rows / right);
  return input_partials(workspace, blocks_of(gpu, s, plan) * mixed::consumer_warps, static_cast<int>(ranges),
                        s.columns());
}

bool takes(const MixedProduct& p, const InputPass& pass) {
  const bool float32 = p.floats.count > 1;
  return !transposed(p.kind) && pass.x_dtype == (float32 ? Dtype::f32 : p.floats.dtype) && on_chunk(pass.x) &&
         on_chunk(pass.grad_x) && on_chunk(pass.codes) && on_chunk(pass.bias);
}

/// The products of all splits, or their gradients.
Status run(const MixedProduct& p, const Gpu& facts, const Sizes& s, const Plan& plan, const Gradients* gradients,
           float* out, const Queue& queue) {
  const auto cut = [](std::int64_t value) { return static_cast<int>(value); };
  Args args{};
  const Status status = make_maps(p, plan, s, &args);
  if (status != Status::ok) return status;
  if (p.kind == Kind::input_grad || p.kind == Kind::weight_grad) {
    const WindowMap w = windows_of(p);
    const std::int64_t out_h = p.kind == Kind::input_grad ? p.shape.in_h : p.shape.out_h(),
                       out_w = p.kind == Kind::input_grad ? p.shape.in_w : p.shape.out_w();
    args.reads = p.kind == Kind::input_grad ? Reads::float_windows : Reads::code_windows;
    args.windows = {w.kernel_w, cut(out_w), cut(out_h * out_w), w.stride_h, w.stride_w, w.pad_h, w.pad_w,
                    w.dil_h,    w.dil_w};
  }
  args.rows = cut(s.rows);
  args.column_taps = cut(s.column_taps);
  args.tap_columns = cut(s.tap_columns);
  args.wide = reads_wide(s);
  args.depth_taps = cut(s.depth_taps);
  args.tap_stages = cut(Sizes::ceil_div(s.tap_depth, mixed::depth));
  args.splits = plan.splits;
  args.gain = plan.splits == 1 ? p.gain : Scalar{nullptr, 1};
  args.out = out;
  args.stride = s.columns();
  args.split_stride = s.rows * s.columns();
  if (gradients != nullptr) {
    args.pass = gradients->pass;
    args.rule = gradients->rule;
    args.scale_a = gradients->scale_a;
    args.terms = gradients->partials.terms;
    args.sums = gradients->partials.sums;
  } else if (plan.splits == 1 && needs_of(facts, s, plan).totals > 0) {
    args.totals = static_cast<Extremes*>(p.totals);
  }
  if (tiles_of(s, plan) > INT32_MAX / 2) return Status::bad_shape;
  const mixed::Choice choice{plan.rows, plan.shared, transposed(p.kind), p.signs};
  const int blocks = blocks_of(facts, s, plan);
  if (p.floats.count > 1) return mixed::launch_bf16x3(choice, args, blocks, queue);
  return p.floats.dtype == Dtype::f16 ? mixed::launch_f16(choice, args, blocks, queue)
                                      : mixed::launch_bf16(choice, args, blocks, queue);
}

}  // namespace

std::optional<MixedNeeds> mixed_needs(const Gpu& gpu, const MixedProduct& p) {
  if (!has_kernel(gpu, p)) return std::nullopt;
  return needs_of(gpu, sizes_of(p), plan_of(gpu, p));
}

Status mixed_product(const MixedProduct& p, void* workspace, const Queue& queue) {
  const Gpu* facts = nullptr;
  Status status = gpu(queue.device, &facts);
  if (status != Status::ok) return status;
  if (!has_kernel(*facts, p)) return Status::bad_shape;
  const Sizes s = sizes_of(p);
  const Plan plan = plan_of(*facts, p);
  float* const parts = plan.splits == 1 ? p.out : static_cast<float*>(workspace);
  status = run(p, *facts, s, plan, nullptr, parts, queue);
  if (status != Status::ok || plan.splits == 1) return status;
  const std::int64_t count = s.rows * s.columns();
  const Sum sum{parts, count, plan.splits, p.gain, p.out};
  if (p.totals == nullptr) return for_fours(count, sum, queue);
  return launch(partial_totals<Extremes, SumTotal>, sum_blocks(count), total_threads, 0, queue, count / 4,
                SumTotal{sum}, static_cast<Extremes*>(p.totals));
}

std::optional<std::int64_t> mixed_input_grads_bytes(const Gpu& gpu, const MixedProduct& p, const InputPass& pass) {
  if (!takes(p, pass) || !has_kernel(gpu, p)) return std::nullopt;
  const Sizes s = sizes_of(p);
  const Plan plan = plan_of(gpu, p);
  if (plan.splits > 1) return needs_of(gpu, s, plan).workspace_bytes + input_pass_bytes(pass);
  const InputPartials partials = partials_of(gpu, s, plan, nullptr);
  return input_partial_bytes(pass, partials.term_count, partials.ranges, partials.columns);
}

Status mixed_input_grads(const MixedProduct& p, const InputPass& pass, const InputRule& rule, const Scalar& scale_a,
                         void* workspace, const Queue& queue) {
  const Gpu* facts = nullptr;
  Status status = gpu(queue.device, &facts);
  if (status != Status::ok) return status;
  if (!takes(p, pass) || !has_kernel(*facts, p)) return Status::bad_shape;
  const Sizes s = sizes_of(p);
  const Plan plan = plan_of(*facts, p);
  if (plan.splits > 1) {
    InputPass of_parts = pass;
    of_parts.up = static_cast<float*>(workspace);
    of_parts.up_parts = plan.splits;
    of_parts.gain = p.gain;
    status = run(p, *facts, s, plan, nullptr, static_cast<float*>(workspace), queue);
    if (status != Status::ok) return status;
    return input_grads(of_parts, rule, scale_a,
                       static_cast<char*>(workspace) + needs_of(*facts, s, plan).workspace_bytes, queue);
  }
  const Gradients gradients{pass, rule, scale_a, partials_of(*facts, s, plan, workspace)};
  status = run(p, *facts, s, plan, &gradients, nullptr, queue);
  if (status != Status::ok) return status;
  return finish_input_grads(pass, rule, scale_a, gradients.partials, queue);
}

}  // namespace bie::kernels::cuda
