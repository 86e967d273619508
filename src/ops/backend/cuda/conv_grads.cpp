// Products of codes, scaled by the passes behind them, and one pass for all gradients of the image.
#include "ops/backend/conv_grads.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <mutex>

#include "ops/backend/backend.h"
#include "ops/backend/cuda/mixed_product.h"

namespace bie::ops::cuda {
namespace {

/// cuDNN chooses among its kernels by settings of the whole process; while one of these objects lives, it takes
/// deterministic ones.
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

/// The activation of a convolution as that of a linear layer of its channels: [batch, in_h, in_w, in_c].
LinearInput pixels_of(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& bias_a, const at::Tensor& scale_a,
                      const Scale& scale) {
  return {x.permute({0, 2, 3, 1}).contiguous(), bias, bias_a, scale_a, scale};
}

/// Pixels [batch, in_h, in_w, in_c], or as many rows of channels, as an image of these sizes in channels_last.
at::Tensor image_of(const at::Tensor& pixels, at::IntArrayRef sizes) {
  return pixels.view({sizes[0], sizes[2], sizes[3], sizes[1]}).permute({0, 3, 1, 2});
}

/// Gradients of the image and of the filter, products of g with `values` and `filter`, undefined where not wanted. Both
/// are codes, which TF32 holds exactly: where it is allowed a float32 gradient goes through the tensor cores in two
/// parts, which hold it to 2^-23.
std::tuple<at::Tensor, at::Tensor> convolution_grads(const at::Tensor& grad, const at::Tensor& values,
                                                     const at::Tensor& filter, const Movement& move, bool want_x,
                                                     bool want_weight) {
  const auto products = [&](const at::Tensor& g) {
    return float_conv_grads(g, values, filter, move, want_x, want_weight);
  };
  const at::Tensor g = grad.to(at::kFloat);
  const DeterministicConvolutions deterministic;
  const bool tf32 = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
  if (!tf32 || grad.scalar_type() != at::kFloat) return products(g);
  constexpr int dropped = 13;  // bits of float32 that TF32 does not have
  const at::Tensor high = g.view(at::kInt).add(1 << (dropped - 1)).bitwise_and(-(1 << dropped)).view(at::kFloat);
  auto [up, grad_w] = products(high);
  const auto [low_up, low_grad_w] = products(g.sub(high));
  if (want_x) up.add_(low_up);
  if (want_weight) grad_w.add_(low_grad_w);
  return {up, grad_w};
}

/// The gradient g [batch, out_c, out_h, out_w] of a convolution's output on CUDA against codes of some scale, in
/// float32: on sm_90 without a copy of them as floats where the kernels of mixed_product.h fit, else by
/// convolution_grads.
class ConvOutputGrad {
 public:
  ConvOutputGrad(const char* op, const at::Tensor& g, const Movement& move);

  /// InputGradients::of_layer of pixels of an image of these sizes [batch, in_c, in_h, in_w], by a filter [out_c,
  /// in_c/groups, kh, kw].
  InputGrads of_pixels(const Codes& filter, const Scale& scale, at::IntArrayRef image, const LinearInput& pixels,
                       const kernels::InputRule& rule, bool want_codes) const;
  /// Gradient of a filter of these sizes: g times the codes of the image, with this zero padding.
  Scaled against(const at::Tensor& image, const Scale& scale, at::IntArrayRef filter, at::IntArrayRef padding) const;

 private:
  kernels::cuda::MixedProduct product(kernels::cuda::MixedProduct::Kind kind, at::IntArrayRef image,
                                      at::IntArrayRef filter, at::IntArrayRef padding) const;

  const char* op_;
  at::Tensor g_;
  Movement move_;
  std::vector<at::Tensor> parts_;  ///< their sum is g, in channels_last
};

ConvOutputGrad::ConvOutputGrad(const char* op, const at::Tensor& g, const Movement& move)
    : op_(op), g_(g), move_(move), parts_(float_parts(op, g.contiguous(at::MemoryFormat::ChannelsLast))) {}

kernels::cuda::MixedProduct ConvOutputGrad::product(kernels::cuda::MixedProduct::Kind kind, at::IntArrayRef image,
                                                    at::IntArrayRef filter, at::IntArrayRef padding) const {
  kernels::cuda::MixedProduct product{};
  product.kind = kind;
  product.shape = {image[0],   image[1],          image[2],          image[3],        filter[0],
                   filter[2],  filter[3],         move_.stride[0],   move_.stride[1], padding[0],
                   padding[1], move_.dilation[0], move_.dilation[1], move_.groups};
  return product;
}

InputGrads ConvOutputGrad::of_pixels(const Codes& filter, const Scale& scale, at::IntArrayRef image,
                                     const LinearInput& pixels, const kernels::InputRule& rule, bool want_codes) const {
  const Codes dense{filter.values.contiguous(at::MemoryFormat::ChannelsLast), filter.signs};
  const auto sent_back =
      product(kernels::cuda::MixedProduct::Kind::input_grad, image, dense.values.sizes(), move_.padding);
  if (auto grads = mixed_input_grads(op_, sent_back, parts_, dense, scale, pixels, rule, want_codes))
    return *std::move(grads);
  const at::Tensor like = at::empty(image, g_.options().dtype(at::kFloat), at::MemoryFormat::ChannelsLast);
  const auto grads = convolution_grads(g_, like, opened(dense, at::kFloat), move_, true, false);
  return input_gradients().of_layer({std::get<0>(grads).contiguous(at::MemoryFormat::ChannelsLast), scale}, pixels,
                                    rule, want_codes);
}

Scaled ConvOutputGrad::against(const at::Tensor& image, const Scale& scale, at::IntArrayRef filter,
                               at::IntArrayRef padding) const {
  const Codes codes{image.contiguous(at::MemoryFormat::ChannelsLast)};
  Scaled grad =
      mixed_product(op_, product(kernels::cuda::MixedProduct::Kind::weight_grad, image.sizes(), filter, padding),
                    parts_, codes, scale, {filter[0] * filter[2] * filter[3], filter[1]}, /*want_totals=*/true);
  if (grad.values.defined()) {
    grad.values = image_of(grad.values, filter);
    return grad;
  }
  Movement move = move_;
  move.padding = padding;
  const at::Tensor like = at::empty(filter, g_.options().dtype(at::kFloat), at::MemoryFormat::ChannelsLast);
  return {std::get<1>(convolution_grads(g_, opened(codes, at::kFloat), like, move, false, true)), scale};
}

constexpr std::int64_t no_padding[] = {0, 0};

class CudaConvGrads final : public ConvGrads {
  Grads run(const ConvGradCall& c) const override {
    const ConvOutputGrad g(c.op, c.g, c.move);
    Grads grads;
    at::Tensor codes = c.x;
    if (at::isFloatingType(c.x.scalar_type())) {
      const LinearInput in = pixels_of(c.x, c.bias, c.bias_a, c.scale_a, c.scale);
      const InputGrads found =
          g.of_pixels(c.filter.codes(), c.filter_scale, c.x.sizes(), in, c.rule, c.of_weight != nullptr);
      grads = {image_of(found.x, c.x.sizes()).contiguous(c.x.suggest_memory_format()), {}, found.scale_a, found.bias_a};
      if (c.of_weight) codes = image_of(found.operand, c.x.sizes());
    }
    if (!c.of_weight) return grads;
    const at::IntArrayRef filter = c.filter.operand.sizes(), padding = c.move.padding;
    const bool rim = c.pads_with_minus_one && (padding[0] > 0 || padding[1] > 0);
    std::get<1>(grads) = c.of_weight(rim ? g.against(padded_with_minus_one(codes, padding), c.scale, filter, no_padding)
                                         : g.against(codes, c.scale, filter, padding));
    return grads;
  }
};

}  // namespace

const ConvGrads& conv_grads() {
  static const CudaConvGrads it;
  return it;
}

}  // namespace bie::ops::cuda
