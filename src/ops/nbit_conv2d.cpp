// q8_conv2d and q4_conv2d: checks, shapes, forward and backward (numerics.md section 7).
#include <ATen/Context.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <tuple>

#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "bie/ops.h"
#include "ops/nbit_layer.h"
#include "ops/output_grad.h"

namespace bie::ops {
namespace {

struct Width8 {
  static constexpr const char* op_name = "q8_conv2d";
  static constexpr const CodeRange& range = q8_range;
  static constexpr bool packs = false;
  static Conv2dTables tables() {
    if constexpr (with_cuda)
      return {kernels::s8xs8_conv2d_table(), kernels::cuda::s8xs8_conv2d_table()};
    else
      return {kernels::s8xs8_conv2d_table(), {}};
  }
};

struct Width4 {
  static constexpr const char* op_name = "q4_conv2d";
  static constexpr const CodeRange& range = q4_range;
  static constexpr bool packs = true;
  static Conv2dTables tables() {
    if constexpr (with_cuda)
      return {kernels::s4xs4_conv2d_table(), kernels::cuda::s4xs4_conv2d_table()};
    else
      return {kernels::s4xs4_conv2d_table(), {}};
  }
};

using OptPair = at::OptionalIntArrayRef;

struct ConvArgs {
  at::Tensor x, weight, scale_a;
  OptTensor scale_w, bias_a;
  at::IntArrayRef stride, padding, dilation;
  OptPair kernel_size;
  double eps;
  bool reference_grad;
  OptTensor anchor, panels;
};
using Forward = Kernel<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&,
                                  const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, OptPair, double,
                                  bool, const OptTensor&, const OptTensor&),
                       ConvArgs>;

struct ConvBackwardArgs {
  at::Tensor g, x, weight, scale_a;
  OptTensor scale_w, bias_a;
  at::IntArrayRef stride, padding, dilation, kernel_size;
  double eps;
  bool reference_grad, want_weight;
};
using Backward = Kernel<Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const OptTensor&, const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                              at::IntArrayRef, double, bool, bool),
                        ConvBackwardArgs>;

struct Geometry {
  std::int64_t out_c, in_c, kernel_h, kernel_w;
  bool packed;  ///< int4 rows, two codes a byte
};

/// What the weight and x say together; a sentence where they disagree. An anchored int8 weight is plain codes; without
/// an anchor the packed form goes first.
template <class W, class Args>
Geometry check_geometry(const Args& a, bool anchored) {
  const at::Tensor &x = a.x, &weight = a.weight;
  const OptPair kernel_size = a.kernel_size;
  const char* op = W::op_name;
  TORCH_CHECK_VALUE(x.dim() == 4, op, ": x is ", x.sym_sizes(), ", [batch, channels, height, width] is wanted");
  if (!is_codes(x)) check_float(op, "x", x);
  if (!is_codes(weight)) check_float(op, "the weight", weight);
  const std::int64_t in_c = fixed_size(x, 1);
  bool packed = W::packs && is_codes(weight);
  if (packed && weight.dim() == 4) {
    const auto is_kernel = [&](int axis) {
      return !kernel_size || (kernel_size->size() == 2 && (*kernel_size)[0] == fixed_size(weight, axis) &&
                              (*kernel_size)[1] == fixed_size(weight, axis + 1));
    };
    // With kernel_size the labels [o, kh, kw, c/2] and [o, c, kh, kw] never coincide: kh = c, kw = kh, c/2 = kw, so c =
    // 0.
    const bool fits_packed = 2 * fixed_size(weight, 3) == in_c && is_kernel(1);
    const bool fits_plain = fixed_size(weight, 1) == in_c && is_kernel(2);
    packed = anchored ? fits_packed && !fits_plain : fits_packed || !fits_plain;
  }
  TORCH_CHECK_VALUE(!packed || !anchored, op, ": a packed int4 weight cannot be trained");
  Geometry g{weight.dim() > 0 ? fixed_size(weight, 0) : 0, in_c, 0, 0, packed};
  if (packed && weight.dim() == 2) {
    TORCH_CHECK_VALUE(kernel_size.has_value() && kernel_size->size() == 2, op,
                      ": a flat packed weight wants kernel_size");
    g.kernel_h = (*kernel_size)[0];
    g.kernel_w = (*kernel_size)[1];
    TORCH_CHECK_VALUE(fixed_size(weight, 1) == (in_c * g.kernel_h * g.kernel_w + 1) / 2, op, ": the weight is ",
                      weight.sym_sizes(), " (packed int4), ", in_c, " channels and kernel ", *kernel_size, " want [n, ",
                      (in_c * g.kernel_h * g.kernel_w + 1) / 2, "]");
  } else {
    TORCH_CHECK_VALUE(weight.dim() == 4, op, ": the weight is ", weight.sym_sizes(), ", four axes are wanted");
    g.kernel_h = fixed_size(weight, packed ? 1 : 2);
    g.kernel_w = fixed_size(weight, packed ? 2 : 3);
    TORCH_CHECK_VALUE(packed ? 2 * fixed_size(weight, 3) == in_c : fixed_size(weight, 1) == in_c, op, ": x is ",
                      x.sym_sizes(), ", the weight is ", weight.sym_sizes(), packed ? " (packed int4)" : "");
    TORCH_CHECK_VALUE(!kernel_size || (kernel_size->size() == 2 && (*kernel_size)[0] == g.kernel_h &&
                                       (*kernel_size)[1] == g.kernel_w),
                      op, ": kernel_size is ", kernel_size ? *kernel_size : at::IntArrayRef{}, ", the weight is ",
                      weight.sym_sizes());
  }
  TORCH_CHECK_VALUE(in_c > 0 && g.kernel_h > 0 && g.kernel_w > 0, op, ": the weight is ", weight.sym_sizes(),
                    ", at least one channel and tap are wanted");
  const auto check_pair = [&](const char* name, at::IntArrayRef pair, std::int64_t least) {
    constexpr std::int64_t most = INT32_MAX;  // products with a kernel's size stay far from overflow
    const auto fits = [least](std::int64_t value) { return value >= least && value <= most; };
    TORCH_CHECK_VALUE(pair.size() == 2 && fits(pair[0]) && fits(pair[1]), op, ": ", name, " is ", pair,
                      ", two numbers from ", least, " to ", most, " are wanted");
  };
  check_pair("stride", a.stride, 1);
  check_pair("padding", a.padding, 0);
  check_pair("dilation", a.dilation, 1);
  return g;
}

c10::SymInt out_size(const char* op, const c10::SymInt& in, std::int64_t kernel, std::int64_t stride,
                     std::int64_t padding, std::int64_t dilation) {
  const c10::SymInt room = in + 2 * padding - dilation * (kernel - 1) - 1;
  TORCH_CHECK_VALUE(room >= 0, op, ": a kernel of ", kernel, " (dilation ", dilation, ") does not fit an image of ", in,
                    " with padding ", padding);
  return room / stride + 1;
}

template <class W, class Args>
std::array<c10::SymInt, 4> output_sizes(const Args& a, const Geometry& g) {
  return {a.x.sym_size(0), g.out_c,
          out_size(W::op_name, a.x.sym_size(2), g.kernel_h, a.stride[0], a.padding[0], a.dilation[0]),
          out_size(W::op_name, a.x.sym_size(3), g.kernel_w, a.stride[1], a.padding[1], a.dilation[1])};
}

template <class W>
at::Tensor empty_output(const ConvArgs& a, const Geometry& g) {
  return at::empty_symint(output_sizes<W>(a, g), a.x.options().dtype(is_codes(a.x) ? at::kFloat : a.x.scalar_type()),
                          a.x.suggest_memory_format());
}

template <class W>
at::Tensor forward_meta(const ConvArgs& a) {
  check_meta(W::op_name, "x", a.x);
  return empty_output<W>(a, check_geometry<W>(a, is_there(a.anchor)));
}

template <class W>
at::Tensor forward(const ConvArgs& a) {
  const char* op = W::op_name;
  const Geometry g = check_geometry<W>(a, is_there(a.anchor));
  if (is_codes(a.x)) check_codes(op, "x", a.x, W::range);
  const Operands o = operands<W>(a, g.in_c, W::packs && !g.packed);
  at::Tensor y = empty_output<W>(a, g);
  if (y.numel() == 0) return y;
  const kernels::Conv2dShape shape{a.x.size(0),  g.in_c,        a.x.size(2),  a.x.size(3), g.out_c,
                                   g.kernel_h,   g.kernel_w,    a.stride[0],  a.stride[1], a.padding[0],
                                   a.padding[1], a.dilation[0], a.dilation[1]};
  run_conv2d(op, W::tables(), shape, a.x.contiguous(a.x.suggest_memory_format()), o.quantiser, o.weight, y);
  return y;
}

/// What the forward pass found, once g, x and the weight are proved to fit. kernel_size tells plain from packed.
template <class W>
Geometry check_backward(const ConvBackwardArgs& a) {
  const Geometry geometry = check_geometry<W>(a, /*anchored=*/false);
  TORCH_CHECK_VALUE(geometry.out_c > 0, W::op_name, ": the weight is ", a.weight.sym_sizes(),
                    ", at least one output channel is wanted");
  TORCH_CHECK_VALUE(!a.want_weight || !geometry.packed, W::op_name, ": a packed int4 weight cannot be trained");
  check_output_grad(W::op_name, a.g, output_sizes<W>(a, geometry), a.x, a.weight);
  return geometry;
}

template <class W>
Grads backward_meta(const ConvBackwardArgs& a) {
  check_backward<W>(a);
  return empty_grads(W::op_name, a.x, a.x.suggest_memory_format(), !is_codes(a.x), a.weight, a.scale_a,
                     value_or_none(a.bias_a), a.want_weight);
}

/// cuDNN chooses among its kernels by settings of the whole process; while one of these lives it takes those that give
/// the same bits every time.
class DeterministicConvolutions {
 public:
  DeterministicConvolutions() {
    const std::lock_guard<std::mutex> lock(mutex());
    if (count()++ > 0) return;
    before() = at::globalContext().deterministicCuDNN();
    at::globalContext().setDeterministicCuDNN(true);
  }
  ~DeterministicConvolutions() {
    const std::lock_guard<std::mutex> lock(mutex());
    if (--count() == 0) at::globalContext().setDeterministicCuDNN(before());
  }
  DeterministicConvolutions(const DeterministicConvolutions&) = delete;
  DeterministicConvolutions& operator=(const DeterministicConvolutions&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex it;
    return it;
  }
  static int& count() {
    static int it = 0;
    return it;
  }
  static bool& before() {
    static bool it = false;
    return it;
  }
};

/// Gradients of the input and of the filter. On CUDA `values` and `filter` are codes, which TF32 holds exactly: where
/// it is allowed a float32 gradient goes through the tensor cores in two parts, which hold it to 2^-23.
std::tuple<at::Tensor, at::Tensor> convolution_grads(const ConvBackwardArgs& a, const at::Tensor& values,
                                                     const at::Tensor& filter, bool want_x) {
  const auto products = [&](const at::Tensor& g) {
    const auto [up, grad_w, grad_bias] = at::convolution_backward(
        g, values, filter, at::OptionalIntArrayRef(), a.stride, a.padding, a.dilation,
        /*transposed=*/false, at::IntArrayRef{0, 0}, /*groups=*/1, {want_x, a.want_weight, false});
    return std::tuple(up, grad_w);
  };
  const at::Tensor g = a.g.to(at::kFloat);
  if (!g.is_cuda()) return products(g);
  const DeterministicConvolutions deterministic;
  const bool tf32 = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
  if (!tf32 || a.g.scalar_type() != at::kFloat) return products(g);
  constexpr int dropped = 13;  // bits of float32 that TF32 does not have
  const at::Tensor high = g.view(at::kInt).add(1 << (dropped - 1)).bitwise_and(-(1 << dropped)).view(at::kFloat);
  auto [up, grad_w] = products(high);
  const auto [low_up, low_grad_w] = products(g.sub(high));
  if (want_x) up.add_(low_up);
  if (a.want_weight) grad_w.add_(low_grad_w);
  return {up, grad_w};
}

template <class W>
Grads backward(const ConvBackwardArgs& a) {
  const auto [out_c, in_c, kh, kw, packed] = check_backward<W>(a);
  at::Tensor codes = a.weight;
  if (packed)
    codes =
        unpack_int4(a.weight.reshape({out_c, (in_c * kh * kw + 1) / 2}), in_c * kh * kw).view({out_c, in_c, kh, kw});
  const Scale scale = backward_scale<W>(a);
  const at::Tensor bias = float_bias(W::op_name, value_or_none(a.bias_a), in_c);
  check_one_device(W::op_name, {a.x, a.g, a.weight, bias});
  const WeightValues<W, ConvBackwardArgs> w(a);
  const bool want_x = !is_codes(a.x);
  const at::MemoryFormat layout = a.x.suggest_memory_format();
  const bool exact = a.x.is_cuda();  // products of codes, scaled afterwards
  at::Tensor xs, values;
  if (want_x) {
    xs = a.x.to(at::kFloat);
    if (bias.defined()) xs = xs.add(bias.view({1, -1, 1, 1}));
    xs = xs.contiguous(layout);
    values = quantized_values(xs, scale, static_cast<float>(a.eps), W::range, exact ? unit_scale : scale);
  } else {
    values = code_values(a.x, exact ? unit_scale : scale);
  }
  auto [up, grad_w] = convolution_grads(a, values, w.values(codes, exact ? unit_scale : w.step.scale), want_x);
  Grads grads;
  if (want_x) {
    up = up.contiguous(layout);
    if (exact) multiply_(up, w.step.scale);
    finish_input_grads<W>(grads, a, xs, scale, up, {0, 2, 3});
  }
  if (a.want_weight) {
    grad_w = grad_w.contiguous();
    if (exact) multiply_(grad_w, scale);
    std::get<1>(grads) = w.grad(grad_w);
  }
  return grads;
}

template <class W>
struct Conv2d {
  using Args = ConvArgs;
  static constexpr const char* op_name = W::op_name;

  static at::Tensor call(const Args& a) {
    static const auto op = find_layer_op<W, Forward::Signature>();
    return op.call(a.x, a.weight, a.scale_a, a.scale_w, a.bias_a, a.stride, a.padding, a.dilation, a.kernel_size, a.eps,
                   a.reference_grad, a.anchor, a.panels);
  }

  static void save(SavedData& to, const Args& a) {
    const Geometry g = check_geometry<W>(a, is_there(a.anchor));
    to["stride"] = a.stride.vec();
    to["padding"] = a.padding.vec();
    to["dilation"] = a.dilation.vec();
    to["kernel_size"] = std::vector<std::int64_t>{g.kernel_h, g.kernel_w};
    to["eps"] = a.eps;
    to["reference_grad"] = a.reference_grad;
  }

  static Grads call_backward(SavedData& from, const at::Tensor& g, const torch::autograd::variable_list& saved,
                             bool want_weight) {
    static const auto op = find_layer_op<W, Backward::Signature>("_backward");
    return op.call(g, saved[0], saved[1], saved[2], none_if_undefined(saved[3]), none_if_undefined(saved[4]),
                   from["stride"].toIntVector(), from["padding"].toIntVector(), from["dilation"].toIntVector(),
                   from["kernel_size"].toIntVector(), from["eps"].toDouble(), from["reference_grad"].toBool(),
                   want_weight);
  }
};

at::Tensor q8_prepack_any(const at::Tensor& weight) {
  const char* op = "q8_conv2d_prepack";
  TORCH_CHECK_TYPE(is_codes(weight), op, ": the weight is ", weight.scalar_type(), ", int8 is wanted");
  TORCH_CHECK_VALUE(weight.dim() == 4 && weight.sym_numel() > 0, op, ": the weight is ", weight.sym_sizes(),
                    ", four axes, none empty, are wanted");
  const kernels::Conv2dShape shape{
      1, fixed_size(weight, 1), 1, 1, fixed_size(weight, 0), fixed_size(weight, 2), fixed_size(weight, 3)};
  return prepack_conv2d(op, Width8::tables(), weight, kernels::Dtype::s8, shape);
}

at::Tensor q4_prepack_any(const at::Tensor& weight, std::int64_t in_channels, at::IntArrayRef kernel_size) {
  const char* op = "q4_conv2d_prepack";
  TORCH_CHECK_TYPE(is_codes(weight), op, ": the weight is ", weight.scalar_type(), ", packed int4 (int8) is wanted");
  TORCH_CHECK_VALUE(in_channels > 0 && kernel_size.size() == 2 && kernel_size[0] > 0 && kernel_size[1] > 0 &&
                        weight.dim() >= 2 && weight.sym_numel() > 0,
                    op, ": the weight is ", weight.sym_sizes(), ", in_channels is ", in_channels, ", kernel_size is ",
                    kernel_size);
  const kernels::Conv2dShape shape{1, in_channels, 1, 1, fixed_size(weight, 0), kernel_size[0], kernel_size[1]};
  TORCH_CHECK_VALUE(weight.sym_numel() == shape.out_c * ((shape.depth() + 1) / 2), op, ": the weight is ",
                    weight.sym_sizes(), ", ", in_channels, " channels and kernel ", kernel_size, " want rows of ",
                    (shape.depth() + 1) / 2, " bytes");
  return prepack_conv2d(op, Width4::tables(), weight, kernels::Dtype::s4, shape);
}

template <class W>
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const at::Tensor& scale_w,
                  const at::Tensor& bias_a, const QConv2dOptions& o) {
  return Conv2d<W>::call({x, weight, scale_a, none_if_undefined(scale_w), none_if_undefined(bias_a), o.stride,
                          o.padding, o.dilation, o.kernel_size ? OptPair(at::IntArrayRef(*o.kernel_size)) : OptPair(),
                          o.eps, o.grad_mode == GradMode::reference, none_if_undefined(o.anchor),
                          none_if_undefined(o.panels)});
}

}  // namespace

at::Tensor q8_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                     const at::Tensor& scale_w, const at::Tensor& bias_a, const QConv2dOptions& options) {
  return conv2d<Width8>(x, weight, scale_a, scale_w, bias_a, options);
}

at::Tensor q4_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                     const at::Tensor& scale_w, const at::Tensor& bias_a, const QConv2dOptions& options) {
  return conv2d<Width4>(x, weight, scale_a, scale_w, bias_a, options);
}

at::Tensor q8_conv2d_prepack(const at::Tensor& weight) {
  static const auto op = find_op<at::Tensor(const at::Tensor&)>("bie::q8_conv2d_prepack");
  return op.call(weight);
}

at::Tensor q4_conv2d_prepack(const at::Tensor& weight, std::int64_t in_channels,
                             std::array<std::int64_t, 2> kernel_size) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, std::int64_t, at::IntArrayRef)>("bie::q4_conv2d_prepack");
  return op.call(weight, in_channels, kernel_size);
}

}  // namespace bie::ops

namespace {

void implement(torch::Library& m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward<Width8>>);
  m.impl("q8_conv2d_backward", Backward::of<backward<Width8>>);
  m.impl("q4_conv2d", Forward::of<forward<Width4>>);
  m.impl("q4_conv2d_backward", Backward::of<backward<Width4>>);
  m.impl("q8_conv2d_prepack", q8_prepack_any);
  m.impl("q4_conv2d_prepack", q4_prepack_any);
}

}  // namespace

TORCH_LIBRARY_IMPL(bie, CPU, m) { implement(m); }
#if BIE_WITH_CUDA
TORCH_LIBRARY_IMPL(bie, CUDA, m) { implement(m); }
#endif

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward_meta<Width8>>);
  m.impl("q8_conv2d_backward", Backward::of<backward_meta<Width8>>);
  m.impl("q4_conv2d", Forward::of<forward_meta<Width4>>);
  m.impl("q4_conv2d_backward", Backward::of<backward_meta<Width4>>);
  m.impl("q8_conv2d_prepack", q8_prepack_any);
  m.impl("q4_conv2d_prepack", q4_prepack_any);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward_autograd<Conv2d<Width8>>>);
  m.impl("q4_conv2d", Forward::of<forward_autograd<Conv2d<Width4>>>);
}
