// binary_matmul, q8_matmul and q4_matmul, products of two activations: checks, shapes, forward and backward
// (docs/spec/binary-linear.md#product-of-two-activations, docs/spec/nbit-linear.md#products-of-two-activations).
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <string>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/products.h"
#include "ops/gradient/nbit_grad.h"
#include "ops/gradient/sign_grad.h"
#include "ops/layer/function.h"
#include "ops/matmul/gemm_batch.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

/// Quantisation of one operand: its clip, and the floor of the step size.
struct Clips {
  Scale own;
  float floor;
};

/// Signs have no eps and no gradient mode.
struct MatMulArgs {
  at::Tensor x, y, x_clip, y_clip;
  double eps = 1e-5;
  bool reference_grad = false;
};
struct MatMulBackwardArgs {
  at::Tensor g, x, y, x_clip, y_clip;
  bool want_x, want_y;
  double eps = 1e-5;
  bool reference_grad = false;
};

struct Signs {
  static constexpr const char* op_name = "binary_matmul";
  static constexpr kernels::Dtype code = kernels::Dtype::bits;

  static Weight weight(const at::Tensor& y, const Scale& /*clip*/, float /*floor*/) {
    return backend_of(op_name, y).products.finite_signs(op_name, "y", y);
  }
  static at::Tensor values(const at::Tensor& v, const Clips& /*clips*/, const Scale& by, at::ScalarType dtype) {
    return sign_values(v, by, dtype);
  }
  static at::Tensor finish(const Scaled& up, const at::Tensor& v, const at::Tensor& clip, const Clips& clips,
                           GradMode) {
    return backend_of(op_name, v).input_gradients.in_place_(up, v, clip, clips.own, sign_rule(v));
  }

  using Forward =
      Kernel<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&), MatMulArgs>;
  using Backward = Kernel<Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const at::Tensor&, bool, bool),
                          MatMulBackwardArgs>;
  static at::Tensor call(const MatMulArgs& a) {
    static const auto op = find_layer_op<Signs, Forward::Signature>();
    return op.call(a.x, a.y, a.x_clip, a.y_clip);
  }
  static Grads call_backward(const MatMulBackwardArgs& a) {
    static const auto op = find_layer_op<Signs, Backward::Signature>("_backward");
    return op.call(a.g, a.x, a.y, a.x_clip, a.y_clip, a.want_x, a.want_y);
  }
};

/// Parts shared by 8- and 4-bit products; W is the traits of one width.
template <class W>
struct CodesKind {
  static Weight weight(const at::Tensor& y, const Scale& clip, float floor) {
    return backend_of(W::op_name, y).products.quantised(W::op_name, W::code, y, clip, floor, W::range);
  }
  static at::Tensor values(const at::Tensor& v, const Clips& clips, const Scale& by, at::ScalarType dtype) {
    return quantized_values(v, clips.own, clips.floor, W::range, by, dtype);
  }
  static at::Tensor finish(const Scaled& up, const at::Tensor& v, const at::Tensor& clip, const Clips& clips,
                           GradMode mode) {
    const kernels::InputRule rule = code_rule(v, W::range, mode, clips.floor);
    return backend_of(W::op_name, v).input_gradients.in_place_(up, v, clip, clips.own, rule);
  }

  using Forward =
      Kernel<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double, bool),
             MatMulArgs>;
  using Backward = Kernel<Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const at::Tensor&, bool, bool, double, bool),
                          MatMulBackwardArgs>;
  static at::Tensor call(const MatMulArgs& a) {
    static const auto op = find_layer_op<W, typename Forward::Signature>();
    return op.call(a.x, a.y, a.x_clip, a.y_clip, a.eps, a.reference_grad);
  }
  static Grads call_backward(const MatMulBackwardArgs& a) {
    static const auto op = find_layer_op<W, typename Backward::Signature>("_backward");
    return op.call(a.g, a.x, a.y, a.x_clip, a.y_clip, a.want_x, a.want_y, a.eps, a.reference_grad);
  }
};

struct Codes8 : CodesKind<Codes8> {
  static constexpr const char* op_name = "q8_matmul";
  static constexpr const CodeRange& range = q8_range;
  static constexpr kernels::Dtype code = kernels::Dtype::s8;
};
struct Codes4 : CodesKind<Codes4> {
  static constexpr const char* op_name = "q4_matmul";
  static constexpr const CodeRange& range = q4_range;
  static constexpr kernels::Dtype code = kernels::Dtype::s4;
};

/// Sizes of the product, once x and y are proved to fit.
c10::SymDimVector output_sizes(const char* op, const at::Tensor& x, const at::Tensor& y) {
  check_float(op, "x", x);
  TORCH_CHECK_TYPE(y.scalar_type() == x.scalar_type(), op, ": y: expected ", x.scalar_type(), ", as x is, got ",
                   y.scalar_type());
  TORCH_CHECK_VALUE(x.dim() >= 3 && y.dim() >= 3, op,
                    ": x and y: expected [..., m, k] and [..., n, k] of at least three axes, got ", x.sym_sizes(),
                    " and ", y.sym_sizes());
  TORCH_CHECK_VALUE(x.sym_size(-1) == y.sym_size(-1) && x.sym_size(-1) > 0, op,
                    ": x and y: expected last axes, which are contracted, of one positive size, got ", x.sym_sizes(),
                    " and ", y.sym_sizes());
  const bool x_is_longer = x.dim() >= y.dim();
  const at::Tensor &longer = x_is_longer ? x : y, &shorter = x_is_longer ? y : x;
  c10::SymDimVector sizes(longer.sym_sizes());
  for (std::int64_t axis = 0; axis < shorter.dim() - 2; ++axis) {
    c10::SymInt& size = sizes[static_cast<std::size_t>(axis + longer.dim() - shorter.dim())];
    const c10::SymInt& own = shorter.sym_size(axis);
    TORCH_CHECK_VALUE(size == own || size == 1 || own == 1, op,
                      ": x and y: expected batch axes that are equal or 1, got ", x.sym_sizes(), " and ",
                      y.sym_sizes());
    if (size == 1) size = own;
  }
  sizes[sizes.size() - 2] = x.sym_size(-2);
  sizes.back() = y.sym_size(-2);
  return sizes;
}

template <class W>
at::Tensor forward_meta(const MatMulArgs& a) {
  check_meta(W::op_name, "x", a.x);
  return at::empty_symint(output_sizes(W::op_name, a.x, a.y), a.x.options());
}

template <class W>
at::Tensor forward(const MatMulArgs& a) {
  const char* op = W::op_name;
  const at::Device device = a.x.device();
  at::Tensor out = at::empty_symint(output_sizes(op, a.x, a.y), a.x.options());
  check_eps(op, a.eps);
  check_one_device(op, {a.x, a.y});
  const Quantiser q{{},
                    scale_of(op, "x_clip", a.x_clip, device),
                    scale_of(op, "y_clip", a.y_clip, device),
                    static_cast<float>(a.eps)};
  const GemmBatch batch(a.x, a.y);
  if (batch.is_empty()) return out;
  const Weight y = W::weight(a.y, q.scale_w, q.floor);
  backend_of(op, device)
      .products.gemm_batch(op, W::code, batch, a.x, q, y, out.view({batch.count(), batch.shape.m, batch.shape.n}));
  return out;
}

template <class W>
void check_backward(const MatMulBackwardArgs& a) {
  check_float(W::op_name, "g", a.g);
  const c10::SymDimVector sizes = output_sizes(W::op_name, a.x, a.y);
  TORCH_CHECK_VALUE(a.g.sym_sizes() == c10::SymIntArrayRef(sizes), W::op_name, ": g is ", a.g.sym_sizes(), ", x is ",
                    a.x.sym_sizes(), ", y is ", a.y.sym_sizes(), ", for which g is ", c10::SymIntArrayRef(sizes));
}

template <class W>
Grads backward_meta(const MatMulBackwardArgs& a) {
  check_backward<W>(a);
  const auto like = [](const char* name, const at::Tensor& t) {
    check_meta(W::op_name, name, t);
    return at::empty_symint(t.sym_sizes(), t.options());
  };
  Grads grads;
  if (a.want_x) grads = {like("x", a.x), {}, like("x_clip", a.x_clip), {}};
  if (a.want_y) {
    std::get<1>(grads) = like("y", a.y);
    std::get<3>(grads) = like("y_clip", a.y_clip);
  }
  return grads;
}

/// Gradients of x, y, x_clip and y_clip.
template <class W>
Grads backward(const MatMulBackwardArgs& a) {
  const char* op = W::op_name;
  check_backward<W>(a);
  check_eps(op, a.eps);
  check_one_device(op, {a.x, a.g, a.y});
  const at::Device device = a.x.device();
  const Scale sx = scale_of(op, "x_clip", a.x_clip, device), sy = scale_of(op, "y_clip", a.y_clip, device);
  const Backend& backend = backend_of(op, device);
  backend.quantizers.check_initialised(op, "x_clip", a.x, sx);
  backend.quantizers.check_initialised(op, "y_clip", a.y, sy);
  const auto floor = static_cast<float>(a.eps);
  const Clips x_clips{sx, floor}, y_clips{sy, floor};
  const GradMode mode = a.reference_grad ? GradMode::reference : GradMode::exact;
  const GemmBatch batch(a.x, a.y);
  const at::Tensor xs = a.x.to(at::kFloat).contiguous(), ys = a.y.to(at::kFloat).contiguous();
  const auto g = backend.products.output_grad(op, a.g.reshape({batch.count(), batch.shape.m, batch.shape.n}));
  const auto x_values = [&](const at::Tensor& x, at::ScalarType dtype, const Scale& by) {
    return batch.entries(W::values(x, x_clips, by, dtype), batch.x_sizes, batch.shape.m);
  };
  const auto y_values = [&](const at::Tensor& y, at::ScalarType dtype, const Scale& by) {
    return batch.entries(W::values(y, y_clips, by, dtype), batch.y_sizes, batch.shape.n);
  };
  Grads grads;
  if (a.want_x) {
    Scaled up = g->times({ys, y_values, {}}, sy);
    up.values = batch.reduced(up.values, batch.x_sizes, a.x.sizes());
    std::get<2>(grads) = W::finish(up, xs, a.x_clip, x_clips, mode);
    std::get<0>(grads) = up.values.to(a.x.scalar_type());
  }
  if (a.want_y) {
    Scaled up = g->transposed_times({xs, x_values, {}}, sx);
    up.values = batch.reduced(up.values, batch.y_sizes, a.y.sizes());
    std::get<3>(grads) = W::finish(up, ys, a.y_clip, y_clips, mode);
    std::get<1>(grads) = up.values.to(a.y.scalar_type());
  }
  return grads;
}

template <class W>
struct MatMulFunction : torch::autograd::Function<MatMulFunction<W>> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& y,
                            const at::Tensor& x_clip, const at::Tensor& y_clip, double eps, bool reference_grad) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({x, y, x_clip, y_clip});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["reference_grad"] = reference_grad;
    return W::call({x, y, x_clip, y_clip, eps, reference_grad});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    refuse_double_backward(W::op_name);
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const auto [x, y, x_clip, y_clip] = W::call_backward(
        {grads[0], saved[0], saved[1], saved[2], saved[3], ctx->needs_input_grad(0) || ctx->needs_input_grad(2),
         ctx->needs_input_grad(1) || ctx->needs_input_grad(3), ctx->saved_data["eps"].toDouble(),
         ctx->saved_data["reference_grad"].toBool()});
    return {x, y, x_clip, y_clip, {}, {}};
  }
};

template <class W>
at::Tensor forward_autograd(const MatMulArgs& a) {
  if (needs_graph(W::op_name, {a.x, a.y, a.x_clip, a.y_clip}))
    return MatMulFunction<W>::apply(a.x, a.y, a.x_clip, a.y_clip, a.eps, a.reference_grad);
  const at::AutoDispatchBelowADInplaceOrView below;
  return W::call(a);
}

template <class W>
at::Tensor codes_matmul(const at::Tensor& x, const at::Tensor& y, const at::Tensor& x_clip, const at::Tensor& y_clip,
                        const QMatMulOptions& o) {
  return W::call({x, y, x_clip, y_clip, o.eps, o.grad_mode == GradMode::reference});
}

}  // namespace

at::Tensor binary_matmul(const at::Tensor& x, const at::Tensor& y, const at::Tensor& x_clip, const at::Tensor& y_clip) {
  return Signs::call({x, y, x_clip, y_clip});
}

at::Tensor q8_matmul(const at::Tensor& x, const at::Tensor& y, const at::Tensor& x_clip, const at::Tensor& y_clip,
                     const QMatMulOptions& options) {
  return codes_matmul<Codes8>(x, y, x_clip, y_clip, options);
}

at::Tensor q4_matmul(const at::Tensor& x, const at::Tensor& y, const at::Tensor& x_clip, const at::Tensor& y_clip,
                     const QMatMulOptions& options) {
  return codes_matmul<Codes4>(x, y, x_clip, y_clip, options);
}

}  // namespace bie::ops

namespace {

template <class W>
void implement_one(bie::ops::Operators& m) {
  using namespace bie::ops;
  m.impl(W::op_name, W::Forward::template of<forward<W>>);
  m.impl((std::string(W::op_name) + "_backward").c_str(), W::Backward::template of<backward<W>>);
}

template <class W>
void describe_one(torch::Library& m) {
  using namespace bie::ops;
  m.impl(W::op_name, W::Forward::template of<forward_meta<W>>);
  m.impl((std::string(W::op_name) + "_backward").c_str(), W::Backward::template of<backward_meta<W>>);
}

}  // namespace

BIE_OPERATORS(m) {
  implement_one<bie::ops::Signs>(m);
  implement_one<bie::ops::Codes8>(m);
  implement_one<bie::ops::Codes4>(m);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  describe_one<bie::ops::Signs>(m);
  describe_one<bie::ops::Codes8>(m);
  describe_one<bie::ops::Codes4>(m);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("binary_matmul", Signs::Forward::of<forward_autograd<Signs>>);
  m.impl("q8_matmul", Codes8::Forward::of<forward_autograd<Codes8>>);
  m.impl("q4_matmul", Codes4::Forward::of<forward_autograd<Codes4>>);
}
