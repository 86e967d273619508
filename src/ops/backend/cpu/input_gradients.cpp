#include "ops/backend/input_gradients.h"

#include <ATen/ops/full.h>

#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/checks.h"

namespace bie::ops::cpu {
namespace {

constexpr const char* op_name = "backward";

kernels::InputPass pass_over(const Scaled& up, const at::Tensor& xs) {
  return {xs.numel(), xs.const_data_ptr<float>(), up.values.mutable_data_ptr<float>(), up.scale.value};
}

const kernels::InputGradKernel& row_of(const at::Tensor& xs) {
  return chosen(op_name, kernels::input_grad_table(), xs.numel());
}

/// in_place(xs) turns `up` [m, k] into the gradient of xs = x + bias and gives that of the scale.
template <class InPlace>
InputGrads input_grads(const Scaled& up, const LinearInput& in, const InPlace& in_place) {
  InputGrads grads;
  grads.operand = in.x.to(at::kFloat).view({-1, in.x.size(-1)});
  if (in.bias.defined()) grads.operand = grads.operand.add(in.bias);
  grads.scale_a = in_place(grads.operand);
  if (in.bias.defined()) grads.bias_a = up.values.sum(0).to(in.bias_a.scalar_type());
  grads.x = up.values.view(in.x.sizes()).to(in.x.scalar_type());
  return grads;
}

class CpuInputGradients final : public InputGradients {
  at::Tensor sign_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                            double denominator) const override {
    double grad = 0;
    check_status(op_name,
                 row_of(xs).sign_backward(pass_over(up, xs), scale.value, denominator, &grad, torch_parallel()));
    return at::full(scale_a.sizes(), grad, scale_a.options());
  }

  at::Tensor quantizer_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                                 const kernels::CodeBounds& bounds, const kernels::StepRule& rule) const override {
    double grad = 0;
    check_status(op_name,
                 row_of(xs).quantizer_backward(pass_over(up, xs), scale.value, bounds, rule, &grad, torch_parallel()));
    return at::full(scale_a.sizes(), grad, scale_a.options());
  }

  InputGrads sign_input_grads(const Scaled& up, const LinearInput& in, double denominator, bool) const override {
    return input_grads(up, in,
                       [&](const at::Tensor& xs) { return sign_backward_(up, xs, in.scale_a, in.scale, denominator); });
  }

  InputGrads quantizer_input_grads(const Scaled& up, const LinearInput& in, const kernels::CodeBounds& bounds,
                                   const kernels::StepRule& rule, bool) const override {
    return input_grads(
        up, in, [&](const at::Tensor& xs) { return quantizer_backward_(up, xs, in.scale_a, in.scale, bounds, rule); });
  }
};

}  // namespace

const InputGradients& input_gradients() {
  static const CpuInputGradients it;
  return it;
}

}  // namespace bie::ops::cpu
