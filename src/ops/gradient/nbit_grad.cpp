#include "ops/gradient/nbit_grad.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>

#include "bie/kernels/cuda/gradient.h"
#include "bie/kernels/input_grad.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/backend/cuda/call.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "backward";

kernels::CodeBounds bounds_of(const CodeRange& range, float floor) {
  return {static_cast<float>(range.lo), static_cast<float>(range.hi), floor};
}

using kernels::StepRule;

StepRule step_rule(const at::Tensor& xs, const CodeRange& range, GradMode mode) {
  const bool exact = mode == GradMode::exact;
  const double count = static_cast<double>(std::max<std::int64_t>(1, xs.numel()));
  return {exact, !exact && range.hi == q8_range.hi, std::sqrt(count * range.hi)};
}

[[maybe_unused]] InputGrads cuda_grads(const Scaled& up, const LinearInput& in, const at::Tensor& grad_x,
                                       const kernels::CodeBounds& bounds, const StepRule& rule, bool want_codes) {
  if constexpr (with_cuda)
    return cuda_input_grads(op_name, up, in, grad_x, want_codes,
                            [&](const CudaCall& call, const kernels::cuda::InputPass& pass, void* workspace) {
                              call(kernels::cuda::quantizer_backward, pass, in.scale.scalar(), bounds, rule, workspace);
                            });
  return {};
}

}  // namespace

at::Tensor quantizer_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                               const CodeRange& range, GradMode mode) {
  const StepRule rule = step_rule(xs, range, mode);
  if constexpr (with_cuda)
    if (xs.is_cuda())
      return cuda_grads(up, {xs, {}, {}, scale_a, scale}, up.values, bounds_of(range, 0), rule, false).scale_a;
  const kernels::InputPass pass{xs.numel(), xs.const_data_ptr<float>(), up.values.mutable_data_ptr<float>(),
                                up.scale.value};
  double grad = 0;
  check_status(op_name, chosen(op_name, kernels::input_grad_table(), pass.count)
                            .quantizer_backward(pass, scale.value, bounds_of(range, 0), rule, &grad, torch_parallel()));
  return at::full(scale_a.sizes(), grad, scale_a.options());
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
  check_status(op_name, chosen(op_name, kernels::gradient_table(), x.numel())
                            .quantized_values(from, x.numel(), scale.value, bounds_of(range, floor), by.value,
                                              values.mutable_data_ptr<float>(), torch_parallel()));
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
  check_status(op_name,
               chosen(op_name, kernels::gradient_table(), codes.numel())
                   .code_values(from, codes.numel(), scale.value, values.mutable_data_ptr<float>(), torch_parallel()));
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
  check_status(op_name,
               chosen(op_name, kernels::gradient_table(), grad.numel())
                   .mask_clipped(g, w, grad.numel(), step.scale.value, bounds_of(range, step.floor), torch_parallel()));
  return grad;
}

}  // namespace bie::ops
