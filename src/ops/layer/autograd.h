// Helpers shared by the layers' autograd functions.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <initializer_list>
#include <optional>
#include <tuple>

#include "ops/checks.h"
#include "ops/dispatcher.h"
#include "ops/gradient/integer_grad.h"

namespace bie::ops {

inline bool is_there(const OptTensor& tensor) { return tensor.has_value() && tensor->defined(); }

/// Whether autograd has to record this call; throws where torch.func or forward-mode derivatives are asked for.
inline bool needs_graph(const char* op, std::initializer_list<at::Tensor> inputs) {
  TORCH_CHECK(at::functorch::getDynamicLayerStack().empty(), op,
              ": transforms of torch.func (grad, vmap, jvp, ...) are refused");
  for (const at::Tensor& input : inputs)
    TORCH_CHECK(!input.defined() || !input._fw_grad(/*level=*/0).defined(), op,
                ": quantised layers have no forward-mode derivative (torch.autograd.forward_ad)");
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) return true;
  return false;
}

/// The edge that tells whether the weight's gradient is asked for: the weight's own (1) for a float weight, the
/// anchor's for int8 codes, -1 where nothing trains it.
inline std::int64_t weight_edge(const char* op, const at::Tensor& x, const at::Tensor& weight, const OptTensor& anchor,
                                int anchor_edge) {
  if (is_there(anchor)) check_anchor(op, x, *anchor);
  if (at::isFloatingType(weight.scalar_type())) return 1;
  return weight.scalar_type() == at::kChar && is_there(anchor) ? anchor_edge : -1;
}

/// The dtype that the weight's gradient is asked for in, if it is.
inline std::optional<at::ScalarType> wanted_weight_grad(const torch::autograd::AutogradContext* ctx,
                                                        const at::Tensor& weight) {
  const std::int64_t edge = ctx->saved_data.at("weight_edge").toInt();
  if (edge < 0 || !ctx->needs_input_grad(static_cast<std::size_t>(edge))) return std::nullopt;
  return weight_grad_dtype(weight);
}

/// Refuses unless g is a float tensor of the output's `sizes`, and the weight's gradient wanted in a dtype it has.
inline void check_output_grad(const char* op, const at::Tensor& g, c10::SymIntArrayRef sizes, const at::Tensor& x,
                              const at::Tensor& weight, std::optional<at::ScalarType> weight_grad) {
  TORCH_CHECK_TYPE(!weight_grad || at::isFloatingType(*weight_grad) || *weight_grad == at::kChar, op,
                   ": weight_grad: expected a float type, int8 or None, got ", weight_grad.value_or(at::kChar));
  check_float(op, "g", g);
  TORCH_CHECK_VALUE(g.sym_sizes() == sizes, op, ": g is ", g.sym_sizes(), ", x is ", x.sym_sizes(), ", the weight is ",
                    weight.sym_sizes(), ", for which g is ", sizes);
}

/// Meta form of (grad_x, grad_weight, grad_scale_a, grad_bias_a).
inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> empty_grads(
    const char* op, const at::Tensor& x, at::MemoryFormat x_layout, bool want_x, const at::Tensor& weight,
    const at::Tensor& scale_a, const at::Tensor& bias, std::optional<at::ScalarType> weight_grad) {
  const auto like = [op](const char* name, const at::Tensor& t, at::ScalarType type,
                         at::MemoryFormat layout = at::MemoryFormat::Contiguous) {
    check_meta(op, name, t);
    return at::empty_symint(t.sym_sizes(), t.options().dtype(type), layout);
  };
  std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> grads;
  if (want_x) {
    std::get<0>(grads) = like("x", x, x.scalar_type(), x_layout);
    std::get<2>(grads) = like("scale_a", scale_a, scale_a.scalar_type());
    if (bias.defined()) std::get<3>(grads) = like("bias_a", bias, bias.scalar_type());
  }
  if (weight_grad) std::get<1>(grads) = like("the weight", weight, *weight_grad);
  return grads;
}

}  // namespace bie::ops
