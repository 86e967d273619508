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

class CpuInputGradients final : public InputGradients {
  at::Tensor in_place_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                       const kernels::InputRule& rule) const override {
    double grad = 0;
    const kernels::InputGradKernel& row = row_of(xs);
    const kernels::InputPass pass = pass_over(up, xs);
    const float step = scale.value;
    check_status(op_name, rule.signs
                              ? row.sign_backward(pass, step, rule.step.denominator, &grad, torch_parallel())
                              : row.quantizer_backward(pass, step, rule.codes, rule.step, &grad, torch_parallel()));
    return at::full(scale_a.sizes(), grad, scale_a.options());
  }

  InputGrads of_layer(const Scaled& up, const LinearInput& in, const kernels::InputRule& rule, bool) const override {
    InputGrads grads;
    grads.operand = in.x.to(at::kFloat).view({-1, in.x.size(-1)});
    if (in.bias.defined()) grads.operand = grads.operand.add(in.bias);
    grads.scale_a = in_place_(up, grads.operand, in.scale_a, in.scale, rule);
    if (in.bias.defined()) grads.bias_a = up.values.sum(0).to(in.bias_a.scalar_type());
    grads.x = up.values.view(in.x.sizes()).to(in.x.scalar_type());
    return grads;
  }
};

}  // namespace

const InputGradients& input_gradients() {
  static const CpuInputGradients it;
  return it;
}

}  // namespace bie::ops::cpu
