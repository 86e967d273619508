// q8_linear and q4_linear: checks, shapes, forward and backward (docs/spec/nbit-linear.md).
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include "bie/ops.h"
#include "ops/layer/nbit_layer.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

struct Width8 {
  static constexpr const char* op_name = "q8_linear";
  static constexpr const CodeRange& range = q8_range;
  static constexpr kernels::Dtype code = kernels::Dtype::s8;
  static constexpr bool packs = false;
};

struct Width4 {
  static constexpr const char* op_name = "q4_linear";
  static constexpr const CodeRange& range = q4_range;
  static constexpr kernels::Dtype code = kernels::Dtype::s4;
  static constexpr bool packs = true;
};

struct LinearArgs {
  at::Tensor x, weight, scale_a;
  OptTensor scale_w, bias_a;
  std::optional<std::int64_t> in_features;
  double eps;
  bool reference_grad;
  OptTensor anchor, panels;
};
using Forward =
    Kernel<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&, const OptTensor&,
                      std::optional<std::int64_t>, double, bool, const OptTensor&, const OptTensor&),
           LinearArgs>;

struct LinearBackwardArgs {
  at::Tensor g, x, weight, scale_a;
  OptTensor scale_w, bias_a;
  double eps;
  bool reference_grad, plain_codes;
  std::optional<at::ScalarType> weight_grad;
};
using Backward = Kernel<Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const OptTensor&, const OptTensor&, double, bool, bool, std::optional<at::ScalarType>),
                        LinearBackwardArgs>;

struct Features {
  std::int64_t k;
  bool plain;  ///< a 4-bit weight of one code per byte
};

/// Sizes from whichever of x, weight and in_features tells them; refuses if two of them differ. An anchored int8 weight
/// is plain codes; without an anchor the packed form goes first, which decides only k = 1.
template <class W>
Features check_features(const at::Tensor& x, const at::Tensor& weight, std::optional<std::int64_t> in_features,
                        bool anchored) {
  TORCH_CHECK_VALUE(x.dim() >= 1, W::op_name, ": x: expected at least one axis, got a 0-dimensional tensor");
  TORCH_CHECK_VALUE(weight.dim() == 2, W::op_name, ": the weight: expected two axes, got ", weight.sym_sizes());
  if (!is_codes(x)) check_float(W::op_name, "x", x);
  if (!is_codes(weight)) check_float(W::op_name, "the weight", weight);
  const c10::SymInt last = x.sym_size(-1);
  const std::int64_t width = fixed_size(weight, 1);
  constexpr std::int64_t per = W::packs ? 2 : 1;
  const auto bytes = [](std::int64_t k) { return (k + per - 1) / per; };
  std::int64_t k = width;
  bool plain = false;
  if (is_codes(weight)) {
    const std::int64_t plain_k = is_codes(x) ? in_features.value_or(width) : fixed_size(x, -1);
    k = is_codes(x) ? in_features.value_or(per * width) : plain_k;
    const bool fits_packed = width == bytes(k) && (!is_codes(x) || last == width);
    plain = per > 1 && width == plain_k && (anchored || !fits_packed);
    TORCH_CHECK_VALUE(per == 1 || !anchored || plain || !fits_packed, W::op_name,
                      ": a packed int4 weight cannot be trained");
    if (plain) k = width;
  }
  TORCH_CHECK_VALUE(k > 0 && (!in_features || *in_features == k), W::op_name,
                    ": in_features: expected a positive number, ", k, " by the tensors, got ", in_features.value_or(k));
  const bool packed = is_codes(weight) && !plain;
  const char* label = per == 1 ? "" : " (packed int4)";
  TORCH_CHECK_VALUE(width == (packed ? bytes(k) : k) && last == (is_codes(x) ? bytes(k) : k), W::op_name, ": x is ",
                    x.sym_sizes(), is_codes(x) ? label : "", ", the weight is ", weight.sym_sizes(),
                    packed && !anchored ? label : "");
  return {k, plain};
}

template <class W>
Features check_features(const LinearArgs& a) {
  return check_features<W>(a.x, a.weight, a.in_features, is_there(a.anchor));
}

c10::SymDimVector output_sizes(const at::Tensor& x, const at::Tensor& weight) {
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return sizes;
}

at::Tensor empty_output(const at::Tensor& x, const at::Tensor& weight) {
  return at::empty_symint(output_sizes(x, weight), x.options().dtype(is_codes(x) ? at::kFloat : x.scalar_type()));
}

template <class W>
at::Tensor forward_meta(const LinearArgs& a) {
  check_meta(W::op_name, "x", a.x);
  check_features<W>(a);
  return empty_output(a.x, a.weight);
}

template <class W>
at::Tensor forward(const LinearArgs& a) {
  const char* op = W::op_name;
  const auto [k, plain] = check_features<W>(a);
  const Operands o = operands<W>(a, k, plain);
  at::Tensor y = empty_output(a.x, a.weight);
  if (y.numel() == 0) return y;
  const Rows rows = rows_of(a.x);
  backend_of(op, a.x).products.gemm(op, W::code, {rows.count, a.weight.size(0), k}, rows,
                                    is_codes(a.x) ? W::code : kernel_dtype(op, "x", a.x), o.quantiser, o.weight, y,
                                    /*kernel_id=*/0);
  return y;
}

/// Features of the forward pass, after checking that g, x and the weight fit them.
template <class W>
Features check_backward(const LinearBackwardArgs& a) {
  const Features f = check_features<W>(a.x, a.weight, std::nullopt, a.plain_codes);
  TORCH_CHECK_VALUE(!a.weight_grad || !W::packs || !is_codes(a.weight) || f.plain, W::op_name,
                    ": a packed int4 weight cannot be trained");
  check_output_grad(W::op_name, a.g, output_sizes(a.x, a.weight), a.x, a.weight, a.weight_grad);
  return f;
}

template <class W>
Grads backward_meta(const LinearBackwardArgs& a) {
  check_backward<W>(a);
  return empty_grads(W::op_name, a.x, at::MemoryFormat::Contiguous, !is_codes(a.x), a.weight, a.scale_a,
                     value_or_none(a.bias_a), a.weight_grad);
}

template <class W>
Grads backward(const LinearBackwardArgs& a) {
  const Features f = check_backward<W>(a);
  const std::int64_t n = a.weight.size(0), k = f.k;
  const bool packed = is_codes(a.weight) && W::packs && !f.plain;
  const auto unpack = [k](const at::Tensor& codes) { return W::packs ? unpack_int4(codes, k) : codes; };
  const Scale scale = backward_scale<W>(a);
  const at::Tensor bias = float_bias(W::op_name, value_or_none(a.bias_a), k);
  check_one_device(W::op_name, {a.x, a.g, a.weight, bias});
  const WeightValues<W, LinearBackwardArgs> w(a);
  const auto g =
      backend_of(W::op_name, a.x).products.output_grad(W::op_name, a.g.reshape({a.x.numel() / a.x.size(-1), n}));
  const auto floor = static_cast<float>(a.eps);
  Grads grads;
  at::Tensor operand;  // [m, k]
  if (is_codes(a.x)) {
    operand = unpack(a.x).view({-1, k});
  } else {
    const LinearInput in{a.x.contiguous(), bias, value_or_none(a.bias_a), a.scale_a, scale};
    const InputGrads found = g->input_grads(w.factor(packed ? unpack(a.weight) : w.operand()), w.step.scale, in,
                                            code_rule(a.x, W::range, grad_mode(a), floor), a.weight_grad.has_value());
    grads = {found.x, {}, found.scale_a, found.bias_a};
    operand = found.operand;
  }
  if (a.weight_grad) {
    const auto values = [&](const at::Tensor& x, at::ScalarType dtype, const Scale& by) {
      return is_codes(x) ? code_values(x, by, dtype) : quantized_values(x, scale, floor, W::range, by, dtype);
    };
    const auto codes = [&]() -> Codes { return {operand}; };
    const Scaled grad = g->transposed_times({operand, values, codes}, scale);
    std::get<1>(grads) = w.grad(grad, *a.weight_grad);
  }
  return grads;
}

template <class W>
struct Linear {
  using Args = LinearArgs;
  static constexpr const char* op_name = W::op_name;

  static at::Tensor call(const Args& a) {
    static const auto op = find_layer_op<W, Forward::Signature>();
    return op.call(a.x, a.weight, a.scale_a, a.scale_w, a.bias_a, a.in_features, a.eps, a.reference_grad, a.anchor,
                   a.panels);
  }

  static void save(SavedData& to, const Args& a) {
    to["eps"] = a.eps;
    to["reference_grad"] = a.reference_grad;
    to["plain_codes"] = check_features<W>(a).plain;
  }

  /// On the CPU, where reading the weight again takes longer than keeping a byte of each element. A 4-bit weight of one
  /// input would count as packed.
  static WeightCodes codes_of(const Args& a) {
    if (!is_plain_cpu(a.weight) || is_codes(a.weight) || a.weight.dim() != 2 || (W::packs && a.weight.size(1) == 1))
      return {};
    const WeightStep step = weight_step(W::op_name, a.weight, value_or_none(a.scale_w), a.eps, W::range);
    return {quantize_codes(W::op_name, a.weight, step.scale, step.floor, W::range),
            at::full({}, step.scale.value, a.weight.options().dtype(at::kFloat))};
  }

  static Grads call_backward(SavedData& from, const at::Tensor& g, const torch::autograd::variable_list& saved,
                             std::optional<at::ScalarType> weight_grad) {
    static const auto op = find_layer_op<W, Backward::Signature>("_backward");
    const at::Tensor &weight = saved[1], &codes = saved[5];
    const double eps = from["eps"].toDouble();
    const bool reference = from["reference_grad"].toBool(), masks = codes.defined() && weight_grad && !reference;
    Grads grads = op.call(g, saved[0], codes.defined() ? codes : weight, saved[2], none_if_undefined(saved[3]),
                          none_if_undefined(saved[4]), eps, reference, codes.defined() || from["plain_codes"].toBool(),
                          masks ? at::kFloat : weight_grad);
    if (!masks) return grads;
    at::Tensor& grad = std::get<1>(grads);
    grad = mask_clipped(grad, weight.to(at::kFloat), weight_step(W::op_name, weight, saved[3], eps, W::range), W::range)
               .to(*weight_grad);
    return grads;
  }
};

void check_prepack(const char* op, const at::Tensor& weight) {
  TORCH_CHECK_TYPE(is_codes(weight), op, ": the weight: expected int8, got ", weight.scalar_type());
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.sym_size(1) > 0, op,
                    ": the weight: expected two axes and at least one input feature, got ", weight.sym_sizes());
}

at::Tensor q8_prepack_any(const at::Tensor& weight) {
  check_prepack("q8_prepack", weight);
  return backend_of("q8_prepack", weight)
      .products.prepack_gemm("q8_prepack", Width8::code, weight, fixed_size(weight, 0), fixed_size(weight, 1), 0);
}

at::Tensor q4_prepack_any(const at::Tensor& weight, std::int64_t in_features) {
  check_prepack("q4_prepack", weight);
  TORCH_CHECK_VALUE(weight.sym_size(1) == (in_features + 1) / 2, "q4_prepack: the weight is ", weight.sym_sizes(),
                    ", in_features = ", in_features, " wants [n, ", (in_features + 1) / 2, "]");
  return backend_of("q4_prepack", weight)
      .products.prepack_gemm("q4_prepack", Width4::code, weight, fixed_size(weight, 0), in_features, 0);
}

template <class W>
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const at::Tensor& scale_w,
                  const at::Tensor& bias_a, const QLinearOptions& o) {
  return Linear<W>::call({x, weight, scale_a, none_if_undefined(scale_w), none_if_undefined(bias_a), o.in_features,
                          o.eps, o.grad_mode == GradMode::reference, none_if_undefined(o.anchor),
                          none_if_undefined(o.panels)});
}

}  // namespace

at::Tensor q8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                     const at::Tensor& scale_w, const at::Tensor& bias_a, const QLinearOptions& options) {
  return linear<Width8>(x, weight, scale_a, scale_w, bias_a, options);
}

at::Tensor q4_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                     const at::Tensor& scale_w, const at::Tensor& bias_a, const QLinearOptions& options) {
  return linear<Width4>(x, weight, scale_a, scale_w, bias_a, options);
}

at::Tensor q8_prepack(const at::Tensor& weight) {
  static const auto op = find_op<at::Tensor(const at::Tensor&)>("bie::q8_prepack");
  return op.call(weight);
}

at::Tensor q4_prepack(const at::Tensor& weight, std::int64_t in_features) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t)>("bie::q4_prepack");
  return op.call(weight, in_features);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("q8_linear", Forward::of<forward<Width8>>);
  m.impl("q8_linear_backward", Backward::of<backward<Width8>>);
  m.impl("q4_linear", Forward::of<forward<Width4>>);
  m.impl("q4_linear_backward", Backward::of<backward<Width4>>);
  m.impl("q8_prepack", q8_prepack_any);
  m.impl("q4_prepack", q4_prepack_any);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("q8_linear", Forward::of<forward_meta<Width8>>);
  m.impl("q8_linear_backward", Backward::of<backward_meta<Width8>>);
  m.impl("q4_linear", Forward::of<forward_meta<Width4>>);
  m.impl("q4_linear_backward", Backward::of<backward_meta<Width4>>);
  m.impl("q8_prepack", q8_prepack_any);
  m.impl("q4_prepack", q4_prepack_any);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("q8_linear", Forward::of<forward_autograd<Linear<Width8>>>);
  m.impl("q4_linear", Forward::of<forward_autograd<Linear<Width4>>>);
}
