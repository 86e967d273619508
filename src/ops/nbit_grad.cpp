#include "ops/nbit_grad.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "bie/kernels/cuda/gradient.h"
#include "ops/cuda_call.h"
#include "ops/elementwise.h"
#include "ops/vector_clones.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "backward";

[[maybe_unused]] kernels::cuda::CodeBounds bounds_of(const CodeRange& range, float floor) {
  return {static_cast<float>(range.lo), static_cast<float>(range.hi), floor};
}

using kernels::cuda::StepRule;

StepRule step_rule(const at::Tensor& xs, const CodeRange& range, GradMode mode) {
  const bool exact = mode == GradMode::exact;
  const double count = static_cast<double>(std::max<std::int64_t>(1, xs.numel()));
  return {exact, !exact && range.hi == q8_range.hi, std::sqrt(count * range.hi)};
}

[[maybe_unused]] InputGrads cuda_grads(const Scaled& up, const LinearInput& in, const at::Tensor& grad_x,
                                       const kernels::cuda::CodeBounds& bounds, const StepRule& rule, bool want_codes) {
  if constexpr (with_cuda)
    return cuda_input_grads(op_name, up, in, grad_x, want_codes,
                            [&](const CudaCall& call, const kernels::cuda::InputPass& pass, void* workspace) {
                              call(kernels::cuda::quantizer_backward, pass, in.scale.scalar(), bounds, rule, workspace);
                            });
  return {};
}

/// What the gradient of the quantiser does beside the range of its codes.
struct Estimator {
  float divisor, lo, hi, gain;
  bool exact;
};

/// g becomes the gradient of x, terms those of the step size.
BIE_VECTOR_CLONES void quantizer_pass(const float* x, float* g, float* terms, std::int64_t count, Estimator e) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = x[i] / e.divisor;
    const float inside = inside_range(v, e.lo, e.hi);
    // Outside, the clamped value is the bound itself.
    const float code = round_clamped(v, e.lo, e.hi);
    const float grad = g[i] * e.gain * inside;
    terms[i] = (code - v * inside) * (e.exact ? g[i] : grad);
    g[i] = grad;
  }
}

BIE_VECTOR_CLONES void quantized_pass(const float* x, float* to, std::int64_t count, float step, float lo, float hi,
                                      float by) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = round_clamped(x[i] / step, lo, hi) * by;
}

BIE_VECTOR_CLONES void code_pass(const std::int8_t* codes, float* to, std::int64_t count, float by) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(codes[i]) * by;
}

BIE_VECTOR_CLONES void mask_pass(const float* w, float* g, std::int64_t count, float step, float lo, float hi) {
  for (std::int64_t i = 0; i < count; ++i) g[i] *= inside_range(w[i] / step, lo, hi);
}

}  // namespace

at::Tensor quantizer_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                               const CodeRange& range, GradMode mode) {
  const StepRule rule = step_rule(xs, range, mode);
  if constexpr (with_cuda)
    if (xs.is_cuda())
      return cuda_grads(up, {xs, {}, {}, scale_a, scale}, up.values, bounds_of(range, 0), rule, false).scale_a;
  const float step = scale.value, divisor = step == 0 ? FLT_MIN : step;
  const float lo = static_cast<float>(range.lo), hi = static_cast<float>(range.hi);
  const float* x = xs.const_data_ptr<float>();
  const at::Tensor values = up.multiplied();
  float* g = values.mutable_data_ptr<float>();
  const Estimator estimator{divisor, lo, hi, rule.scaled ? step : 1.0f, rule.exact};
  const double sum = sum_of_terms(xs.numel(), [=](std::int64_t begin, std::int64_t end, float* terms) {
    quantizer_pass(x + begin, g + begin, terms, end - begin, estimator);
  });
  return at::full(scale_a.sizes(), step == 0 ? 0 : sum / rule.denominator, scale_a.options());
}

InputGrads quantizer_input_grads(const Scaled& up, const LinearInput& in, const CodeRange& range, GradMode mode,
                                 float floor, bool want_codes) {
  if constexpr (with_cuda)
    if (in.x.is_cuda())
      return cuda_grads(up, in, at::empty_like(in.x), bounds_of(range, floor), step_rule(in.x, range, mode),
                        want_codes);
  return cpu_input_grads(up, in, [&](const Scaled& given, const at::Tensor& xs) {
    return quantizer_backward_(given, xs, in.scale_a, in.scale, range, mode);
  });
}

WeightStep weight_step(const char* op, const at::Tensor& weight, const at::Tensor& scale_w, double eps,
                       const CodeRange& range) {
  const float floor = static_cast<float>(eps);
  if (scale_w.defined()) return {scale_of(op, "scale_w", scale_w, weight.device()), floor};
  // The 4-bit layer's scale_w includes the floor.
  const float least = range.hi == q4_range.hi ? floor : 0.0f;
  return {mean_scale(op, "the weight", weight, range.mean_to_step, least), floor};
}

at::Tensor quantized_values(const at::Tensor& x, const Scale& scale, float floor, const CodeRange& range,
                            const Scale& by, at::ScalarType dtype) {
  at::Tensor values = at::empty_like(x, x.options().dtype(dtype));
  const float* from = x.const_data_ptr<float>();
  if constexpr (with_cuda) {
    if (x.is_cuda()) {
      const CudaCall call(op_name, x.device());
      call(kernels::cuda::quantized_values, from, x.numel(), scale.scalar(), bounds_of(range, floor), by.scalar(),
           values.mutable_data_ptr(), kernel_dtype(op_name, "values", values));
      return values;
    }
  }
  float* to = values.mutable_data_ptr<float>();
  const float lo = static_cast<float>(range.lo), hi = static_cast<float>(range.hi);
  const float factor = by.value, step = std::max(scale.value, floor);
  for_ranges(x.numel(), [=](std::int64_t begin, std::int64_t end) {
    quantized_pass(from + begin, to + begin, end - begin, step, lo, hi, factor);
  });
  return values;
}

at::Tensor code_values(const at::Tensor& codes, const Scale& scale, at::ScalarType dtype) {
  const at::MemoryFormat layout = codes.suggest_memory_format();
  const at::Tensor dense = codes.contiguous(layout);
  at::Tensor values = at::empty(codes.sizes(), codes.options().dtype(dtype), layout);
  const std::int8_t* from = dense.const_data_ptr<std::int8_t>();
  if constexpr (with_cuda) {
    if (codes.is_cuda()) {
      const CudaCall call(op_name, codes.device());
      call(kernels::cuda::code_values, from, codes.numel(), scale.scalar(), values.mutable_data_ptr(),
           kernel_dtype(op_name, "values", values));
      return values;
    }
  }
  float* to = values.mutable_data_ptr<float>();
  const float by = scale.value;
  for_ranges(codes.numel(),
             [=](std::int64_t begin, std::int64_t end) { code_pass(from + begin, to + begin, end - begin, by); });
  return values;
}

at::Tensor mask_clipped(at::Tensor grad, const at::Tensor& weight, const WeightStep& step, const CodeRange& range) {
  grad = grad.contiguous();
  const at::Tensor dense = weight.contiguous();
  const float* w = dense.const_data_ptr<float>();
  float* g = grad.mutable_data_ptr<float>();
  if constexpr (with_cuda) {
    if (grad.is_cuda()) {
      check_one_device(op_name, {grad, weight});
      const CudaCall call(op_name, grad.device());
      call(kernels::cuda::mask_clipped, g, w, grad.numel(), step.scale.scalar(), bounds_of(range, step.floor));
      return grad;
    }
  }
  const float lo = static_cast<float>(range.lo), hi = static_cast<float>(range.hi);
  const float by = std::max(step.scale.value, step.floor);
  for_ranges(grad.numel(),
             [=](std::int64_t begin, std::int64_t end) { mask_pass(w + begin, g + begin, end - begin, by, lo, hi); });
  return grad;
}

}  // namespace bie::ops
