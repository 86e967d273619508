#include "ops/conv2d/conv2d_grad.h"

#include <ATen/Context.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>

#include <mutex>

namespace bie::ops {
namespace {

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

}  // namespace

std::tuple<at::Tensor, at::Tensor> convolution_grads(const at::Tensor& grad, const at::Tensor& values,
                                                     const at::Tensor& filter, const Movement& move, bool want_x,
                                                     bool want_weight) {
  const auto products = [&](const at::Tensor& g) {
    const auto [up, grad_w, grad_bias] = at::convolution_backward(
        g, values, filter, at::OptionalIntArrayRef(), move.stride, move.padding, move.dilation,
        /*transposed=*/false, at::IntArrayRef{0, 0}, move.groups, {want_x, want_weight, false});
    return std::tuple(up, grad_w);
  };
  const at::Tensor g = grad.to(at::kFloat);
  if (!g.is_cuda()) return products(g);
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

ConvOutputGrad::ConvOutputGrad(const char* op, const at::Tensor& g, const Movement& move)
    : op_(op), g_(g), move_(move) {
  if constexpr (with_cuda) parts_ = float_parts(op, g.contiguous(at::MemoryFormat::ChannelsLast));
}

kernels::cuda::MixedProduct ConvOutputGrad::product(kernels::cuda::MixedProduct::Kind kind, at::IntArrayRef image,
                                                    at::IntArrayRef filter, at::IntArrayRef padding) const {
  kernels::cuda::MixedProduct product{};
  product.kind = kind;
  product.shape = {image[0],   image[1],          image[2],          image[3],        filter[0],
                   filter[2],  filter[3],         move_.stride[0],   move_.stride[1], padding[0],
                   padding[1], move_.dilation[0], move_.dilation[1], move_.groups};
  return product;
}

Scaled ConvOutputGrad::through(const Codes& filter, const Scale& scale, at::IntArrayRef image) const {
  if constexpr (with_cuda) {
    const Codes dense{filter.values.contiguous(at::MemoryFormat::ChannelsLast), filter.signs};
    Scaled up = mixed_product(
        op_, product(kernels::cuda::MixedProduct::Kind::input_grad, image, dense.values.sizes(), move_.padding), parts_,
        dense, scale, {image[0] * image[2] * image[3], image[1]}, /*want_totals=*/false);
    if (up.values.defined()) {
      up.values = image_of(up.values, image);
      return up;
    }
    const at::Tensor like = at::empty(image, g_.options().dtype(at::kFloat), at::MemoryFormat::ChannelsLast);
    const auto grads = convolution_grads(g_, like, opened(dense, at::kFloat), move_, true, false);
    return {std::get<0>(grads).contiguous(at::MemoryFormat::ChannelsLast), scale};
  }
  return {};
}

Scaled ConvOutputGrad::against(const at::Tensor& image, const Scale& scale, at::IntArrayRef filter,
                               at::IntArrayRef padding) const {
  if constexpr (with_cuda) {
    const Codes codes{image.contiguous(at::MemoryFormat::ChannelsLast)};
    Scaled grad =
        mixed_product(op_, product(kernels::cuda::MixedProduct::Kind::weight_grad, image.sizes(), filter, padding),
                      parts_, codes, scale, {filter[0] * filter[2] * filter[3], filter[1]}, /*want_totals=*/true);
    if (grad.values.defined()) {
      grad.values = image_of(grad.values, filter).contiguous();
      return grad;
    }
    Movement move = move_;
    move.padding = padding;
    const at::Tensor like = at::empty(filter, g_.options().dtype(at::kFloat), at::MemoryFormat::ChannelsLast);
    return {std::get<1>(convolution_grads(g_, opened(codes, at::kFloat), like, move, false, true)).contiguous(), scale};
  }
  return {};
}

LinearInput pixels_of(const at::Tensor& x, const at::Tensor& bias, const OptTensor& bias_a, const at::Tensor& scale_a,
                      const Scale& scale) {
  return {x.permute({0, 2, 3, 1}).contiguous(), bias, value_or_none(bias_a), scale_a, scale};
}

at::Tensor image_of(const at::Tensor& pixels, at::IntArrayRef sizes) {
  return pixels.view({sizes[0], sizes[2], sizes[3], sizes[1]}).permute({0, 3, 1, 2});
}

}  // namespace bie::ops
