// The quantisers of numerics.md section 2 and the first-batch scale.
#include "ops/quantizers.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "bie/kernels/quantize.h"
#include "bie/ops.h"
#include "kernels/amax_factor.h"
#include "ops/cuda_call.h"
#include "ops/elementwise.h"
#include "ops/torch_parallel.h"
#include "ops/vector_clones.h"

namespace bie::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

at::Tensor scalar_like(const at::Tensor& x, double value) { return at::full({}, value, x.options().dtype(at::kFloat)); }

/// The codes and the scale that they were made with, which is NaN where x holds NaN or infinity. inline, so that a
/// build without CUDA, where nothing calls it, holds no copy.
[[maybe_unused]] inline Pair quantize_cuda(const char* op, const at::Tensor& x, const OptTensor& scale, float floor,
                                           const CodeRange& range) {
  const CudaCall call(op, x.device());
  at::Tensor out;
  Scale step;
  float* poison = nullptr;
  if (scale.has_value()) {
    step = scale_of(op, "scale", *scale, x.device());
    out = scalar_like(x, step.value);
    if (step.device.defined()) out.copy_(step.device.reshape({}));
    poison = out.mutable_data_ptr<float>();
  } else {
    step = mean_scale(op, "x", x, range.mean_to_step);
    out = step.device;
  }
  const at::Tensor dense = x.contiguous();
  at::Tensor codes = at::empty(x.sizes(), x.options().dtype(at::kChar));
  call(kernels::cuda::quantize_codes, dense.const_data_ptr(), kernel_dtype(op, "x", x), x.numel(), step.scalar(), floor,
       range.lo, range.hi, codes.mutable_data_ptr<std::int8_t>(), poison);
  return {codes, out};
}

Pair quantize(const char* op, const at::Tensor& x, const OptTensor& scale, double eps, const CodeRange& range) {
  check_float(op, "x", x);
  check_eps(op, eps);
  const float floor = static_cast<float>(eps);
  if constexpr (with_cuda) {
    if (x.is_cuda()) return quantize_cuda(op, x, scale, floor, range);
  }
  const Scale given =
      scale.has_value() ? scale_of(op, "scale", *scale, x.device()) : mean_scale(op, "x", x, range.mean_to_step);
  return {quantize_codes(op, x, given, floor, range), scalar_like(x, given.value)};
}

Pair q8_quantize_real(const at::Tensor& x, const OptTensor& scale, double eps) {
  return quantize("q8_quantize", x, scale, eps, q8_range);
}

Pair q4_quantize_real(const at::Tensor& x, const OptTensor& scale, double eps) {
  return quantize("q4_quantize", x, scale, eps, q4_range);
}

Pair quantize_meta(const char* op, const at::Tensor& x) {
  check_meta(op, "x", x);
  return {at::empty_symint(x.sym_sizes(), x.options().dtype(at::kChar)), at::empty({}, x.options().dtype(at::kFloat))};
}

Pair q8_quantize_meta(const at::Tensor& x, const OptTensor&, double) { return quantize_meta("q8_quantize", x); }

Pair q4_quantize_meta(const at::Tensor& x, const OptTensor&, double) { return quantize_meta("q4_quantize", x); }

struct AmaxRange {
  double lo, bound;
  bool is_unsigned;
};

AmaxRange amax_range(const char* op, std::int64_t num_bits, bool is_unsigned, bool narrow_range) {
  TORCH_CHECK_VALUE(num_bits >= 2 && num_bits <= 16, op, ": num_bits is ", num_bits, ", 2 to 16 are wanted");
  const double bound = std::ldexp(1.0, static_cast<int>(num_bits) - 1 + (is_unsigned ? 1 : 0)) - 1;
  return {is_unsigned ? 0 : narrow_range ? -bound : -bound - 1, bound, is_unsigned};
}

void check_amax(const char* op, float amax) {
  TORCH_CHECK_VALUE(std::isfinite(amax) && amax >= 0, op, ": amax is ", amax, ", a finite number >= 0 is wanted");
}

/// q = clamp(rint(x * scale), lo, bound), for a scale = bound / amax.
Pair amax_quantize_value(const char* op, const at::Tensor& x, float amax, const AmaxRange& range) {
  check_amax(op, amax);
  const at::Tensor xf = x.to(at::kFloat);
  TORCH_CHECK_TYPE(!range.is_unsigned || x.numel() == 0 || xf.min().item<float>() >= 0, op,
                   ": x holds negative values, unsigned quantisation wants none");
  if (amax == 0) return {at::zeros_like(x), scalar_like(x, 1)};
  const auto [lift, by] = kernels::amax_factor(static_cast<float>(range.bound), amax);
  const at::Tensor q = xf.mul(lift).mul_(by).round_().clamp_(range.lo, range.bound).to(x.scalar_type());
  return {q, scalar_like(x, amax <= 0x1p-24f ? 1.0f : by)};
}

[[maybe_unused]] inline Pair amax_quantize_cuda(const char* op, const at::Tensor& x, const OptTensor& amax,
                                                const AmaxRange& range) {
  const CudaCall call(op, x.device());
  Scale given;
  if (amax.has_value()) {
    given = scale_of(op, "amax", *amax, x.device());
    if (!given.device.defined()) check_amax(op, given.value);
  }
  const kernels::cuda::Scalar most = given.scalar();
  const at::Tensor dense = x.contiguous(), workspace = call.workspace();
  at::Tensor q = at::empty(x.sizes(), x.options());
  at::Tensor scale = at::empty({}, x.options().dtype(at::kFloat));
  call(kernels::cuda::amax_quantize, dense.const_data_ptr(), kernel_dtype(op, "x", x), x.numel(),
       amax.has_value() ? &most : nullptr,
       kernels::cuda::AmaxRange{static_cast<float>(range.lo), static_cast<float>(range.bound), range.is_unsigned},
       q.mutable_data_ptr(), scale.mutable_data_ptr<float>(), workspace.mutable_data_ptr());
  return {q, scale};
}

Pair amax_quantize_cpu(const char* op, const at::Tensor& x, const OptTensor& amax, const AmaxRange& range) {
  TORCH_CHECK_VALUE(at::isfinite(x).all().item<bool>(), op, ": x holds NaN or infinity");
  const float most = amax.has_value() ? scale_of(op, "amax", *amax, x.device()).value : x.max().item<float>();
  return amax_quantize_value(op, x, most, range);
}

Pair amax_quantize_real(const at::Tensor& x, const OptTensor& amax, std::int64_t num_bits, bool is_unsigned,
                        bool narrow_range) {
  const char* op = "amax_quantize";
  check_float(op, "x", x);
  TORCH_CHECK_VALUE(x.numel() > 0, op, ": x is ", x.sizes(), ", at least one element is wanted");
  TORCH_CHECK_VALUE(!amax.has_value() || (amax->numel() == 1 && (amax->dim() == 0 || amax->dim() == x.dim())), op,
                    ": amax is ", amax.has_value() ? amax->sizes() : at::IntArrayRef(), ", one element of rank 0 or ",
                    x.dim(), " is wanted");
  const AmaxRange range = amax_range(op, num_bits, is_unsigned, narrow_range);
  const auto quantized = [&]() -> Pair {
    if constexpr (with_cuda) {
      if (x.is_cuda()) return amax_quantize_cuda(op, x, amax, range);
    }
    return amax_quantize_cpu(op, x, amax, range);
  };
  const auto [q, scale] = quantized();
  const at::DimVector ones(static_cast<std::size_t>(x.dim()), 1);
  return {q, scale.view(ones)};
}

Pair amax_quantize_meta(const at::Tensor& x, const OptTensor&, std::int64_t, bool, bool) {
  check_meta("amax_quantize", "x", x);
  const at::DimVector ones(static_cast<std::size_t>(x.dim()), 1);
  return {at::empty_symint(x.sym_sizes(), x.options()), at::empty(ones, x.options().dtype(at::kFloat))};
}

/// The bounds are arguments, because GCC makes branches of a clamp between constants.
BIE_VECTOR_CLONES void int8_grad_pass(const float* from, std::int8_t* to, std::int64_t count,
                                      kernels::AmaxFactor factor, float lo, float hi) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<std::int8_t>(static_cast<int>(round_clamped(from[i] * factor.lift * factor.by, lo, hi)));
}

at::Tensor int8_grad_real(const at::Tensor& g) {
  check_float("int8_grad", "g", g);
  return int8_codes({g});
}

at::Tensor int8_grad_meta(const at::Tensor& g) { return at::empty_symint(g.sym_sizes(), g.options().dtype(at::kChar)); }

Pair binary_init_real(const at::Tensor& weight) {
  const char* op = "binary_init";
  check_float(op, "weight", weight);
  TORCH_CHECK_VALUE(weight.numel() > 0, op, ": weight is ", weight.sizes(), ", at least one element is wanted");
  if constexpr (with_cuda) {
    if (weight.is_cuda()) {
      const CudaCall call(op, weight.device());
      const at::Tensor dense = weight.contiguous(), workspace = call.workspace();
      at::Tensor q = at::empty(weight.sizes(), weight.options().dtype(at::kChar));
      at::Tensor scale_w = at::empty({}, weight.options().dtype(at::kFloat));
      call(kernels::cuda::binary_init, dense.const_data_ptr(), kernel_dtype(op, "weight", weight), weight.numel(),
           q.mutable_data_ptr<std::int8_t>(), scale_w.mutable_data_ptr<float>(), workspace.mutable_data_ptr());
      return {q, scale_w};
    }
  }
  const at::Tensor w = weight.to(at::kFloat);
  const Scale scale_w = mean_scale(op, "weight", weight, 1);
  const at::Tensor centred = w.sub(w.mean(at::kDouble).item<float>());
  // An all-equal weight may centre to tiny negatives only: amax_quantize wants amax >= 0.
  const float amax = std::max(0.0f, centred.max().item<float>());
  at::Tensor q = std::get<0>(amax_quantize_value(op, centred, amax, amax_range(op, 8, false, true)));
  q = at::where(q.eq(0), at::sign(centred), q);
  q = at::where(q.eq(0), at::full({}, 1.0f), q).to(at::kChar);
  return {q, scalar_like(weight, scale_w.value)};
}

Pair binary_init_meta(const at::Tensor& weight) {
  return {at::empty_symint(weight.sym_sizes(), weight.options().dtype(at::kChar)),
          at::empty({}, weight.options().dtype(at::kFloat))};
}

void check_first_batch(const char* op, const at::Tensor& x, double c) {
  check_float(op, "x", x);
  TORCH_CHECK_VALUE(std::isfinite(c) && c > 0, op, ": c is ", c, ", a positive number is wanted");
}

void init_scale_real(at::Tensor& scale_a, const at::Tensor& x, double c) {
  const char* op = "init_scale_";
  TORCH_CHECK_TYPE(scale_a.scalar_type() == at::kFloat, op, ": scale_a is ", scale_a.scalar_type(),
                   ", float32 is wanted");
  check_one_device(op, {x, scale_a});
  if constexpr (with_cuda) {
    if (x.is_cuda()) {
      check_first_batch(op, x, c);
      const Scale scale = scale_of(op, "scale_a", scale_a, x.device());
      const CudaCall call(op, x.device());
      const at::Tensor dense = x.contiguous(), workspace = call.workspace();
      call(kernels::cuda::init_scale, dense.const_data_ptr(), kernel_dtype(op, "x", x), x.numel(), c,
           scale.device.mutable_data_ptr<float>(), workspace.mutable_data_ptr());
      bump_version(scale_a);
      return;
    }
  }
  if (scale_value(op, "scale_a", scale_a) != 0) return;
  check_first_batch(op, x, c);
  scale_a.fill_(mean_scale(op, "x", x, c).value);
}

void init_scale_meta(at::Tensor& scale_a, const at::Tensor&, double) { check_meta("init_scale_", "scale_a", scale_a); }

void implement(torch::Library& m) {
  m.impl("q8_quantize", q8_quantize_real);
  m.impl("q4_quantize", q4_quantize_real);
  m.impl("amax_quantize", amax_quantize_real);
  m.impl("int8_grad", int8_grad_real);
  m.impl("binary_init", binary_init_real);
  m.impl("init_scale_", init_scale_real);
}

}  // namespace

at::Tensor int8_codes(const Scaled& grad) {
  const char* op = "int8_grad";
  const at::Tensor& g = grad.values;
  if (g.numel() == 0) return at::empty(g.sizes(), g.options().dtype(at::kChar));
  if constexpr (with_cuda) {
    if (g.is_cuda()) {
      const CudaCall call(op, g.device());
      const at::Tensor dense = g.contiguous(), workspace = grad.totals.defined() ? grad.totals : call.workspace();
      at::Tensor q = at::empty(g.sizes(), g.options().dtype(at::kChar));
      call(kernels::cuda::int8_grad, dense.const_data_ptr(), kernel_dtype(op, "g", g), g.numel(), grad.scale.scalar(),
           q.mutable_data_ptr<std::int8_t>(), grad.total_count, workspace.mutable_data_ptr());
      return q;
    }
  }
  const at::Tensor wide = Scaled{g.to(at::kFloat, /*non_blocking=*/false, /*copy=*/grad.scale.value != 1), grad.scale}
                              .multiplied()
                              .contiguous();
  at::Tensor q = at::zeros(g.sizes(), g.options().dtype(at::kChar));
  const auto [low, high] = at::aminmax(wide);
  const float min = low.item<float>(), max = high.item<float>();
  if (!std::isfinite(max) || !std::isfinite(min)) return q;  // the step counts as skipped
  const float amax = max > 0 ? max : std::fabs(min);
  if (amax == 0) return q;
  const kernels::AmaxFactor factor = kernels::amax_factor(127, amax);
  const float* from = wide.const_data_ptr<float>();
  std::int8_t* to = q.mutable_data_ptr<std::int8_t>();
  for_ranges(g.numel(), [=](std::int64_t begin, std::int64_t end) {
    int8_grad_pass(from + begin, to + begin, end - begin, factor, -127, 127);
  });
  return q;
}

void check_eps(const char* op, double eps) {
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps > 0, op, ": eps is ", eps, ", a positive number is wanted");
}

Scale mean_scale(const char* op, const char* name, const at::Tensor& x, double c, float floor) {
  const kernels::Dtype dtype = kernel_dtype(op, name, x);
  const at::Tensor dense = x.contiguous();
  if constexpr (with_cuda) {
    if (x.is_cuda()) {
      const CudaCall call(op, x.device());
      const at::Tensor workspace = call.workspace();
      at::Tensor scale = at::empty({}, x.options().dtype(at::kFloat));
      call(kernels::cuda::mean_scale, dense.const_data_ptr(), dtype, x.numel(), c, floor,
           scale.mutable_data_ptr<float>(), workspace.mutable_data_ptr());
      return {0, scale};
    }
  }
  const float mean = kernels::mean_abs(dense.const_data_ptr(), dtype, x.numel(), torch_parallel());
  const float step = static_cast<float>(static_cast<double>(mean) * c);
  TORCH_CHECK_VALUE(std::isfinite(step), op, ": ", name, " holds NaN or infinity");
  return {std::max(step, floor), {}};
}

at::Tensor quantize_codes(const char* op, const at::Tensor& x, const Scale& scale, float floor,
                          const CodeRange& range) {
  const kernels::Dtype dtype = kernel_dtype(op, "x", x);
  const at::Tensor dense = x.contiguous();
  at::Tensor codes = at::empty(x.sizes(), x.options().dtype(at::kChar));
  if constexpr (with_cuda) {
    if (x.is_cuda()) {
      const CudaCall call(op, x.device());
      float* const no_poison = nullptr;
      call(kernels::cuda::quantize_codes, dense.const_data_ptr(), dtype, x.numel(), scale.scalar(), floor, range.lo,
           range.hi, codes.mutable_data_ptr<std::int8_t>(), no_poison);
      return codes;
    }
  }
  const float step = std::max(scale.value, floor);
  // Rows only divide the work here: any split of a dense tensor gives the same codes.
  constexpr std::int64_t run = 16384;
  const std::int64_t whole = x.numel() / run * run;
  const char* from = static_cast<const char*>(dense.const_data_ptr());
  std::int8_t* to = codes.mutable_data_ptr<std::int8_t>();
  const auto quantize_rows = [&](std::int64_t begin, std::int64_t rows, std::int64_t k) {
    if (rows == 0 || k == 0) return;
    const kernels::RowsShape shape{rows, k};
    const auto& row = kernels::choose(kernels::quantize_table(), shape, host_isas(op));
    check_status(op, row.run(shape, from + kernels::row_bytes(dtype, begin), dtype, kernels::row_bytes(dtype, k),
                             nullptr, step, range.lo, range.hi, to + begin, torch_parallel()));
  };
  quantize_rows(0, whole / run, run);
  quantize_rows(whole, 1, x.numel() - whole);
  return codes;
}

void check_codes(const char* op, const char* name, const at::Tensor& codes, const CodeRange& range) {
  if (range.lo == -128 || codes.is_cuda()) return;
  const at::Tensor dense = codes.is_non_overlapping_and_dense() ? codes : codes.contiguous();
  const std::int8_t* from = dense.const_data_ptr<std::int8_t>();
  const int lo = range.lo;
  const auto span = static_cast<std::uint8_t>(range.hi - range.lo);
  std::atomic<bool> outside{false};
  for_ranges(dense.numel(), [&](std::int64_t begin, std::int64_t end) {
    std::uint8_t any = 0;
    for (std::int64_t i = begin; i < end; ++i) any |= static_cast<std::uint8_t>(from[i] - lo) > span;
    if (any != 0) outside.store(true, std::memory_order_relaxed);
  });
  TORCH_CHECK_VALUE(!outside.load(), op, ": ", name, " holds codes outside [", range.lo, ", ", range.hi, "]");
}

std::tuple<at::Tensor, at::Tensor> q8_quantize(const at::Tensor& x, const at::Tensor& scale, double eps) {
  static const auto op = find_op<Pair(const at::Tensor&, const OptTensor&, double)>("bie::q8_quantize");
  return op.call(x, none_if_undefined(scale), eps);
}

std::tuple<at::Tensor, at::Tensor> q4_quantize(const at::Tensor& x, const at::Tensor& scale, double eps) {
  static const auto op = find_op<Pair(const at::Tensor&, const OptTensor&, double)>("bie::q4_quantize");
  return op.call(x, none_if_undefined(scale), eps);
}

std::tuple<at::Tensor, at::Tensor> amax_quantize(const at::Tensor& x, const at::Tensor& amax, std::int64_t num_bits,
                                                 bool is_unsigned, bool narrow_range) {
  static const auto op =
      find_op<Pair(const at::Tensor&, const OptTensor&, std::int64_t, bool, bool)>("bie::amax_quantize");
  return op.call(x, none_if_undefined(amax), num_bits, is_unsigned, narrow_range);
}

at::Tensor int8_grad(const at::Tensor& g) {
  static const auto op = find_op<at::Tensor(const at::Tensor&)>("bie::int8_grad");
  return op.call(g);
}

std::tuple<at::Tensor, at::Tensor> binary_init(const at::Tensor& weight) {
  static const auto op = find_op<Pair(const at::Tensor&)>("bie::binary_init");
  return op.call(weight);
}

void init_scale_(const at::Tensor& scale_a, const at::Tensor& x, double c) {
  static const auto op = find_op<void(at::Tensor&, const at::Tensor&, double)>("bie::init_scale_");
  at::Tensor target = scale_a;
  op.call(target, x, c);
}

}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CPU, m) { bie::ops::implement(m); }
#if BIE_WITH_CUDA
TORCH_LIBRARY_IMPL(bie, CUDA, m) { bie::ops::implement(m); }
#endif

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("q8_quantize", bie::ops::q8_quantize_meta);
  m.impl("q4_quantize", bie::ops::q4_quantize_meta);
  m.impl("amax_quantize", bie::ops::amax_quantize_meta);
  m.impl("int8_grad", bie::ops::int8_grad_meta);
  m.impl("binary_init", bie::ops::binary_init_meta);
  m.impl("init_scale_", bie::ops::init_scale_meta);
}
