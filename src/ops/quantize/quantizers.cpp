// The quantisers of numerics.md section 2 and the first-batch scale.
#include "ops/quantize/quantizers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "bie/kernels/amax_codes.h"
#include "bie/kernels/quantize.h"
#include "bie/ops.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/backend/cuda/call.h"
#include "ops/registration.h"

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

kernels::AmaxRange amax_range(const char* op, std::int64_t num_bits, bool is_unsigned, bool narrow_range) {
  TORCH_CHECK_VALUE(num_bits >= 2 && num_bits <= 16, op, ": num_bits is ", num_bits, ", 2 to 16 are wanted");
  const float bound = std::ldexp(1.0f, static_cast<int>(num_bits) - 1 + (is_unsigned ? 1 : 0)) - 1;
  return {is_unsigned ? 0 : narrow_range ? -bound : -bound - 1, bound, is_unsigned};
}

void check_amax(const char* op, float amax) {
  TORCH_CHECK_VALUE(std::isfinite(amax) && amax >= 0, op, ": amax is ", amax, ", a finite number >= 0 is wanted");
}

[[maybe_unused]] inline Pair amax_quantize_cuda(const char* op, const at::Tensor& x, const OptTensor& amax,
                                                const kernels::AmaxRange& range) {
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
       amax.has_value() ? &most : nullptr, range, q.mutable_data_ptr(), scale.mutable_data_ptr<float>(),
       workspace.mutable_data_ptr());
  return {q, scale};
}

Pair amax_quantize_cpu(const char* op, const at::Tensor& x, const OptTensor& amax, const kernels::AmaxRange& range) {
  const kernels::AmaxCodesKernel& row = chosen(op, kernels::amax_codes_table(), x.numel());
  const kernels::Dtype dtype = kernel_dtype(op, "x", x);
  const at::Tensor dense = x.contiguous();
  kernels::Extremes all{};
  check_status(op, row.extremes(dense.const_data_ptr(), dtype, x.numel(), &all, torch_parallel()));
  TORCH_CHECK_VALUE(all.all_finite, op, ": x holds NaN or infinity");
  const float most = amax.has_value() ? scale_of(op, "amax", *amax, x.device()).value : all.max;
  check_amax(op, most);
  TORCH_CHECK_TYPE(!range.is_unsigned || all.min >= 0, op,
                   ": x holds negative values, unsigned quantisation wants none");
  at::Tensor q = at::empty(x.sizes(), x.options());
  float scale = 0;
  check_status(op, row.amax_quantize(dense.const_data_ptr(), dtype, x.numel(), most, range, q.mutable_data_ptr(),
                                     &scale, torch_parallel()));
  return {q, scalar_like(x, scale)};
}

Pair amax_quantize_real(const at::Tensor& x, const OptTensor& amax, std::int64_t num_bits, bool is_unsigned,
                        bool narrow_range) {
  const char* op = "amax_quantize";
  check_float(op, "x", x);
  TORCH_CHECK_VALUE(x.numel() > 0, op, ": x is ", x.sizes(), ", at least one element is wanted");
  TORCH_CHECK_VALUE(!amax.has_value() || (amax->numel() == 1 && (amax->dim() == 0 || amax->dim() == x.dim())), op,
                    ": amax is ", amax.has_value() ? amax->sizes() : at::IntArrayRef(), ", one element of rank 0 or ",
                    x.dim(), " is wanted");
  const kernels::AmaxRange range = amax_range(op, num_bits, is_unsigned, narrow_range);
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
  const at::Tensor dense = weight.contiguous();
  at::Tensor q = at::empty(weight.sizes(), weight.options().dtype(at::kChar));
  float scale = 0;
  const kernels::Status status =
      chosen(op, kernels::amax_codes_table(), weight.numel())
          .binary_init(dense.const_data_ptr(), kernel_dtype(op, "weight", weight), weight.numel(),
                       q.mutable_data_ptr<std::int8_t>(), &scale, torch_parallel());
  TORCH_CHECK_VALUE(status != kernels::Status::not_finite, op, ": weight holds NaN or infinity");
  TORCH_CHECK_VALUE(status != kernels::Status::bad_scale, op, ": weight minus its mean is beyond float32");
  check_status(op, status);
  return {q, scalar_like(weight, scale)};
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
  const at::Tensor dense = g.contiguous();
  at::Tensor q = at::empty(g.sizes(), g.options().dtype(at::kChar));
  check_status(op, chosen(op, kernels::amax_codes_table(), g.numel())
                       .int8_grad(dense.const_data_ptr(), kernel_dtype(op, "g", g), g.numel(), grad.scale.value,
                                  q.mutable_data_ptr<std::int8_t>(), torch_parallel()));
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
    const auto& row = chosen(op, kernels::quantize_table(), shape);
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
  TORCH_CHECK_VALUE(
      kernels::codes_within(dense.const_data_ptr<std::int8_t>(), dense.numel(), range.lo, range.hi, torch_parallel()),
      op, ": ", name, " holds codes outside [", range.lo, ", ", range.hi, "]");
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

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("q8_quantize", q8_quantize_real);
  m.impl("q4_quantize", q4_quantize_real);
  m.impl("amax_quantize", amax_quantize_real);
  m.impl("int8_grad", int8_grad_real);
  m.impl("binary_init", binary_init_real);
  m.impl("init_scale_", init_scale_real);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("q8_quantize", bie::ops::q8_quantize_meta);
  m.impl("q4_quantize", bie::ops::q4_quantize_meta);
  m.impl("amax_quantize", bie::ops::amax_quantize_meta);
  m.impl("int8_grad", bie::ops::int8_grad_meta);
  m.impl("binary_init", bie::ops::binary_init_meta);
  m.impl("init_scale_", bie::ops::init_scale_meta);
}
