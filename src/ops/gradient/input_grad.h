// The gradients of a quantised activation, from the gradient that came back through the weight.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "bie/kernels/cuda/input_grad.h"
#include "ops/backend/cuda/call.h"
#include "ops/bridge.h"

namespace bie::ops {

/// The activation of a linear layer, quantised as x + bias.
struct LinearInput {
  at::Tensor x;        ///< floats [..., k], dense
  at::Tensor bias;     ///< float32 [k], or undefined
  at::Tensor bias_a;   ///< the same as the layer has it
  at::Tensor scale_a;  ///< as the layer has it
  Scale scale;         ///< its value
};

/// Gradients in the dtypes of what they belong to; undefined where there is nothing to belong to.
struct InputGrads {
  at::Tensor x, bias_a, scale_a;
  /// What the weight's gradient multiplies, [m, k]: x + bias in float32 on the CPU; its codes, int8, on CUDA, if
  /// wanted.
  at::Tensor operand;
};

/// On the CPU: in_place(up, xs) turns `up` [m, k] into the gradient of xs = x + bias and gives that of the scale.
template <class InPlace>
InputGrads cpu_input_grads(const Scaled& up, const LinearInput& in, const InPlace& in_place) {
  InputGrads grads;
  grads.operand = in.x.to(at::kFloat).view({-1, in.x.size(-1)});
  if (in.bias.defined()) grads.operand = grads.operand.add(in.bias);
  grads.scale_a = in_place(up, grads.operand);
  if (in.bias.defined()) grads.bias_a = up.values.sum(0).to(in.bias_a.scalar_type());
  grads.x = up.values.view(in.x.sizes()).to(in.x.scalar_type());
  return grads;
}

/// On CUDA, all in one pass: start(call, pass, workspace) queues it. x, up and grad_x are dense and of one order.
template <class Start>
InputGrads cuda_input_grads(const char* op, const Scaled& up, const LinearInput& in, at::Tensor grad_x, bool want_codes,
                            const Start& start) {
  check_one_device(op, {in.x, up.values, in.bias});
  const CudaCall call(op, in.x.device());
  const auto f32 = in.x.options().dtype(at::kFloat);
  InputGrads grads;
  kernels::cuda::InputPass pass{};
  pass.columns = in.bias.defined() ? in.bias.numel() : in.x.numel();
  pass.rows = pass.columns > 0 ? in.x.numel() / pass.columns : 0;
  pass.up = up.values.const_data_ptr<float>();
  pass.gain = up.scale.scalar();
  pass.x = in.x.const_data_ptr();
  pass.x_dtype = kernel_dtype(op, "x", in.x);
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

}  // namespace bie::ops
