// An operator of a layer with its backward pass: arguments as one struct, autograd. binary_conv2d and the q8/q4 layers.
#pragma once

#include <string>
#include <tuple>

#include "ops/backend/input_gradients.h"
#include "ops/layer/autograd.h"

namespace bie::ops {

/// The dispatcher calls a kernel with the schema's list of arguments; these kernels take one struct with its members in
/// that order.
template <class Signature, class Args>
struct Kernel;
template <class R, class... T, class Args>
struct Kernel<R(T...), Args> {
  using Signature = R(T...);
  template <R (*function)(const Args&)>
  static R of(T... list) {
    return function(Args{list...});
  }
};

using SavedData = decltype(torch::autograd::AutogradContext::saved_data);

inline bool is_codes(const at::Tensor& t) { return t.scalar_type() == at::kChar; }

/// The dispatcher's entry of this layer's operator, or of its backward pass.
template <class W, class Signature>
auto find_layer_op(const char* suffix = "") {
  return find_op<Signature>((std::string("bie::") + W::op_name + suffix).c_str());
}

/// Codes of a float weight with their scale, found once for both passes; undefined where each pass finds its own.
struct WeightCodes {
  at::Tensor codes, scale;
};

/// Layer: Args, call(args), save(saved_data, args), codes_of(args) and call_backward(saved_data, g, saved tensors,
/// weight_grad); saved are x, weight, scale_a, scale_w, bias_a, codes.
template <class Layer>
struct LayerFunction : torch::autograd::Function<LayerFunction<Layer>> {
  using Args = typename Layer::Args;

  /// The tensors are passed a second time, because autograd makes edges for direct arguments only.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& scale_a, const OptTensor& scale_w, const OptTensor& bias_a,
                            const OptTensor& anchor, const Args& a) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const WeightCodes found = Layer::codes_of(a);
    ctx->save_for_backward({x, weight, scale_a, found.codes.defined() ? found.scale : value_or_none(scale_w),
                            value_or_none(bias_a), found.codes});
    Layer::save(ctx->saved_data, a);
    // Edges count only defined tensors: x, weight, scale_a, then those of scale_w, bias_a and anchor that are there.
    ctx->saved_data["weight_edge"] =
        weight_edge(Layer::op_name, x, weight, anchor, 3 + is_there(scale_w) + is_there(bias_a));
    if (!found.codes.defined()) return Layer::call(a);
    Args coded = a;
    coded.weight = found.codes;
    coded.scale_w = found.scale;
    return Layer::call(coded);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    refuse_double_backward(Layer::op_name);
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const auto [x, w, scale_a, bias] =
        Layer::call_backward(ctx->saved_data, grads[0], saved, wanted_weight_grad(ctx, saved[1]));
    return {x, delivered(saved[1], w), scale_a, {}, bias, {}, {}};
  }
};

template <class Layer>
at::Tensor forward_autograd(const typename Layer::Args& a) {
  if (needs_graph(Layer::op_name, {a.x, a.weight, a.scale_a, value_or_none(a.bias_a), value_or_none(a.anchor)}))
    return LayerFunction<Layer>::apply(a.x, a.weight, a.scale_a, a.scale_w, a.bias_a, a.anchor, a);
  const at::AutoDispatchBelowADInplaceOrView below;
  return Layer::call(a);
}

}  // namespace bie::ops
