#include "ops/backend/input_gradients.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/backend/cuda/input_pass.h"
#include "ops/checks.h"

namespace bie::ops::cuda {
namespace {

constexpr const char* op_name = "backward";

InputGrads run(const Scaled& up, const LinearInput& in, at::Tensor grad_x, const kernels::InputRule& rule,
               bool want_codes) {
  check_one_device(op_name, {in.x, up.values, in.bias});
  const CudaCall call(op_name, in.x.device());
  PlannedInputPass planned(in, std::move(grad_x), want_codes);
  planned.pass.up = up.values.const_data_ptr<float>();
  planned.pass.up_parts = 1;
  planned.pass.gain = up.scale.scalar();
  const at::Tensor workspace =
      at::empty({kernels::cuda::input_pass_bytes(planned.pass)}, in.x.options().dtype(at::kByte));
  call(kernels::cuda::input_grads, planned.pass, rule, in.scale.scalar(), workspace.mutable_data_ptr());
  return planned.grads();
}

class CudaInputGradients final : public InputGradients {
  at::Tensor in_place_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                       const kernels::InputRule& rule) const override {
    return run(up, {xs, {}, {}, scale_a, scale}, up.values, rule, false).scale_a;
  }

  InputGrads of_layer(const Scaled& up, const LinearInput& in, const kernels::InputRule& rule,
                      bool want_codes) const override {
    return run(up, in, at::empty_like(in.x), rule, want_codes);
  }
};

}  // namespace

PlannedInputPass::PlannedInputPass(const LinearInput& in, at::Tensor grad_x, bool want_codes)
    : bias_a_(in.bias_a), scale_a_(in.scale_a) {
  const auto f32 = in.x.options().dtype(at::kFloat);
  pass.columns = in.bias.defined() ? in.bias.numel() : in.x.numel();
  pass.rows = pass.columns > 0 ? in.x.numel() / pass.columns : 0;
  pass.x = in.x.const_data_ptr();
  pass.x_dtype = kernel_dtype(op_name, "x", in.x);
  pass.grad_x = grad_x.mutable_data_ptr();
  grads_.x = std::move(grad_x);
  grad_scale_ = at::empty(in.scale_a.sizes(), f32);
  pass.grad_scale = grad_scale_.mutable_data_ptr<float>();
  if (in.bias.defined()) {
    grad_bias_ = at::empty(in.bias.sizes(), f32);
    pass.bias = in.bias.const_data_ptr<float>();
    pass.grad_bias = grad_bias_.mutable_data_ptr<float>();
  }
  if (want_codes) {
    grads_.operand = at::empty({in.x.numel() / in.x.size(-1), in.x.size(-1)}, in.x.options().dtype(at::kChar));
    pass.codes = grads_.operand.mutable_data_ptr<std::int8_t>();
  }
}

InputGrads PlannedInputPass::grads() const {
  InputGrads grads = grads_;
  if (grad_bias_.defined()) grads.bias_a = grad_bias_.to(bias_a_.scalar_type());
  // A scale on the CPU that wants no gradient is not worth waiting for.
  if (!scale_a_.is_cpu() || scale_a_.requires_grad()) grads.scale_a = grad_scale_.to(scale_a_.options());
  return grads;
}

const InputGradients& input_gradients() {
  static const CudaInputGradients it;
  return it;
}

}  // namespace bie::ops::cuda
