#include "ops/backend/input_gradients.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "bie/kernels/cuda/input_grad.h"
#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/checks.h"

namespace bie::ops::cuda {
namespace {

constexpr const char* op_name = "backward";

/// All in one pass: start(call, pass, workspace) queues it. x, up and grad_x are dense and of one order.
template <class Start>
InputGrads input_grads(const Scaled& up, const LinearInput& in, at::Tensor grad_x, bool want_codes,
                       const Start& start) {
  check_one_device(op_name, {in.x, up.values, in.bias});
  const CudaCall call(op_name, in.x.device());
  const auto f32 = in.x.options().dtype(at::kFloat);
  InputGrads grads;
  kernels::cuda::InputPass pass{};
  pass.columns = in.bias.defined() ? in.bias.numel() : in.x.numel();
  pass.rows = pass.columns > 0 ? in.x.numel() / pass.columns : 0;
  pass.up = up.values.const_data_ptr<float>();
  pass.gain = up.scale.scalar();
  pass.x = in.x.const_data_ptr();
  pass.x_dtype = kernel_dtype(op_name, "x", in.x);
  pass.grad_x = grad_x.mutable_data_ptr();
  grads.x = std::move(grad_x);
  const at::Tensor grad_scale = at::empty(in.scale_a.sizes(), f32);
  pass.grad_scale = grad_scale.mutable_data_ptr<float>();
  at::Tensor grad_bias;
  if (in.bias.defined()) {
    grad_bias = at::empty(in.bias.sizes(), f32);
    pass.bias = in.bias.const_data_ptr<float>();
    pass.grad_bias = grad_bias.mutable_data_ptr<float>();
  }
  if (want_codes) {
    grads.operand = at::empty({in.x.numel() / in.x.size(-1), in.x.size(-1)}, in.x.options().dtype(at::kChar));
    pass.codes = grads.operand.mutable_data_ptr<std::int8_t>();
  }
  const at::Tensor workspace = at::empty({kernels::cuda::input_pass_bytes(pass)}, in.x.options().dtype(at::kByte));
  start(call, pass, workspace.mutable_data_ptr());
  if (grad_bias.defined()) grads.bias_a = grad_bias.to(in.bias_a.scalar_type());
  // A scale on the CPU that wants no gradient is not worth waiting for.
  if (!in.scale_a.is_cpu() || in.scale_a.requires_grad()) grads.scale_a = grad_scale.to(in.scale_a.options());
  return grads;
}

class CudaInputGradients final : public InputGradients {
  at::Tensor sign_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                            double denominator) const override {
    return signs(up, {xs, {}, {}, scale_a, scale}, up.values, denominator, false).scale_a;
  }

  at::Tensor quantizer_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                                 const kernels::CodeBounds& bounds, const kernels::StepRule& rule) const override {
    return codes(up, {xs, {}, {}, scale_a, scale}, up.values, bounds, rule, false).scale_a;
  }

  InputGrads sign_input_grads(const Scaled& up, const LinearInput& in, double denominator,
                              bool want_codes) const override {
    return signs(up, in, at::empty_like(in.x), denominator, want_codes);
  }

  InputGrads quantizer_input_grads(const Scaled& up, const LinearInput& in, const kernels::CodeBounds& bounds,
                                   const kernels::StepRule& rule, bool want_codes) const override {
    return codes(up, in, at::empty_like(in.x), bounds, rule, want_codes);
  }

 private:
  static InputGrads signs(const Scaled& up, const LinearInput& in, const at::Tensor& grad_x, double denominator,
                          bool want_codes) {
    return input_grads(up, in, grad_x, want_codes,
                       [&](const CudaCall& call, const kernels::cuda::InputPass& pass, void* workspace) {
                         call(kernels::cuda::sign_backward, pass, in.scale.scalar(), denominator, workspace);
                       });
  }
  static InputGrads codes(const Scaled& up, const LinearInput& in, const at::Tensor& grad_x,
                          const kernels::CodeBounds& bounds, const kernels::StepRule& rule, bool want_codes) {
    return input_grads(up, in, grad_x, want_codes,
                       [&](const CudaCall& call, const kernels::cuda::InputPass& pass, void* workspace) {
                         call(kernels::cuda::quantizer_backward, pass, in.scale.scalar(), bounds, rule, workspace);
                       });
  }
};

}  // namespace

const InputGradients& input_gradients() {
  static const CudaInputGradients it;
  return it;
}

}  // namespace bie::ops::cuda
