#include "models/blocks.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/record_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "bie/kernels/float_gemm.h"
#include "bie/kernels/planes.h"
#include "bie/layers/conv2d.h"
#include "bie/layers/linear.h"
#include "bie/ops.h"
#include "bie/ops/threads.h"

namespace bie::models {
namespace {

using ops::NormNumbers, ops::TailActivation;

bool is_latent(const ModelConfig& c, const PlannedLayer& l) {
  return c.weights == WeightForm::floating || (c.weights == WeightForm::usual && l.bits > 1);
}

// A layer without a bias has a BatchNorm behind it, which can hold scales of channels too.

std::shared_ptr<layers::IntegerLayer> low_linear(const ModelConfig& c, const PlannedLayer& l, bool bias) {
  const bool latent = is_latent(c, l);
  const layers::QLinearOptions options{.in_features = l.in,
                                       .out_features = l.out,
                                       .latent = latent,
                                       .bias = bias,
                                       .channel_scales = c.channel_scales && bias};
  if (l.bits == 8) return std::make_shared<layers::Q8LinearImpl>(options);
  if (l.bits == 4) return std::make_shared<layers::Q4LinearImpl>(options);
  return std::make_shared<layers::BinaryLinearImpl>(layers::BinaryLinearOptions{l.in, l.out, latent, bias});
}

std::shared_ptr<layers::IntegerLayer> low_conv(const ModelConfig& c, const PlannedLayer& l, bool bias) {
  const auto fill = [&](auto options) {
    options.stride = {l.stride, l.stride};
    options.padding = {l.padding, l.padding};
    options.latent = is_latent(c, l);
    options.bias = bias;
    return options;
  };
  if (l.bits == 1)
    return std::make_shared<layers::BinaryConv2dImpl>(
        fill(layers::BinaryConv2dOptions{l.in, l.out, {l.kernel, l.kernel}}));
  layers::QConv2dOptions options = fill(layers::QConv2dOptions{l.in, l.out, {l.kernel, l.kernel}});
  options.channel_scales = c.channel_scales && bias;
  if (l.bits == 8) return std::make_shared<layers::Q8Conv2dImpl>(options);
  return std::make_shared<layers::Q4Conv2dImpl>(options);
}

/// Whether an integer layer is among those of the net.
bool has_few_bits(const ModelConfig& c) {
  const auto few = [](int bits) { return bits > 0 && bits < 32; };
  bool any = few(c.bits) || few(c.linear_bits);
  for (const auto& [name, bits] : c.bits_of) any = any || few(bits);
  for (const LayerSpec& layer : c.layers) any = any || few(layer.bits);
  return any;
}

bool is_dense(const at::Tensor& t) {
  return !t.defined() || (t.is_cpu() && t.scalar_type() == at::kFloat && t.is_contiguous());
}

const float* numbers_or_null(const at::Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; }

template <class Impl>
bool read_numbers(const torch::nn::Module& module, NormNumbers* numbers) {
  const auto* norm = dynamic_cast<const Impl*>(&module);
  if (norm == nullptr) return false;
  *numbers = {norm->running_mean, norm->running_var, norm->weight, norm->bias, norm->options.eps()};
  return true;
}

/// Whether a BatchNorm, or none, has fixed numbers: in evaluation.
bool has_numbers(const torch::nn::AnyModule& norm, NormNumbers* numbers) {
  if (norm.is_empty()) return true;
  const std::shared_ptr<torch::nn::Module> module = norm.ptr();
  return !module->is_training() && (read_numbers<torch::nn::BatchNorm1dImpl>(*module, numbers) ||
                                    read_numbers<torch::nn::BatchNorm2dImpl>(*module, numbers));
}

struct NormInTraining {
  NormNumbers numbers;
  double momentum;
  at::Tensor batches;  ///< their number, or undefined
};
template <class Impl>
bool read_training(torch::nn::Module& module, NormInTraining* training) {
  auto* norm = dynamic_cast<Impl*>(&module);
  if (norm == nullptr || !norm->is_training() || !norm->options.momentum()) return false;
  *training = {{norm->running_mean, norm->running_var, norm->weight, norm->bias, norm->options.eps()},
               *norm->options.momentum(),
               norm->num_batches_tracked};
  return true;
}

/// A training BatchNorm of x with the epilogue behind it, in a few passes; undefined if torch's modules have to compute
/// it.
at::Tensor fused_tail(torch::nn::AnyModule& norm, const at::Tensor& x, const at::Tensor& shortcut,
                      const TailActivation& act, std::int64_t pool) {
  if (norm.is_empty() || !x.is_cuda()) return {};
  NormInTraining its;
  if (!read_training<torch::nn::BatchNorm1dImpl>(*norm.ptr(), &its) &&
      !read_training<torch::nn::BatchNorm2dImpl>(*norm.ptr(), &its))
    return {};
  const bool pools = pool == 1 || (x.dim() == 4 && x.size(2) >= pool && x.size(3) >= pool);
  if (!pools || !ops::has_training_tail(x, its.numbers, shortcut, act, pool)) return {};
  if (its.batches.defined()) its.batches.add_(1);
  return ops::training_tail(x, its.numbers, its.momentum, shortcut, act, pool);
}

TailActivation tail_of(Activation act, const torch::nn::PReLU& prelu) {
  switch (act) {
    case Activation::relu: return {TailActivation::relu, {}};
    case Activation::prelu: return {TailActivation::prelu, prelu->weight};
    default: return {};
  }
}

}  // namespace

at::Tensor normalised(torch::nn::AnyModule& norm, const at::Tensor& x) {
  if (norm.is_empty()) return x;
  NormNumbers numbers;
  if (has_numbers(norm, &numbers) && ops::has_block_tail(x, numbers, {}, {})) return ops::block_tail(x, numbers);
  if (at::Tensor fused = fused_tail(norm, x, {}, {}, 1); fused.defined()) return fused;
  return norm.forward(x);
}

at::Tensor channel_means(const at::Tensor& x, bool training) {
  if (training || at::GradMode::is_enabled() || !x.is_cpu() || x.scalar_type() != at::kFloat || !x.is_contiguous())
    return x.mean({2, 3});
  const at::Tensor means = at::empty({x.size(0), x.size(1)}, x.options());
  kernels::plane_means(x.const_data_ptr<float>(), means.numel(), x.size(2) * x.size(3), means.mutable_data_ptr<float>(),
                       kernels::serial());
  return means;
}

Product::Product(const ModelConfig& c, const PlannedLayer& l, bool bias) : layer_(l), in_order_(has_few_bits(c)) {
  if (l.bits < 32)
    low_ = l.is_conv() ? low_conv(c, l, bias) : low_linear(c, l, bias);
  else if (l.is_conv())
    full_ = torch::nn::AnyModule(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(l.in, l.out, l.kernel).stride(l.stride).padding(l.padding).bias(bias)));
  else
    full_ = torch::nn::AnyModule(torch::nn::Linear(torch::nn::LinearOptions(l.in, l.out).bias(bias)));
}

std::shared_ptr<torch::nn::Module> Product::module() const {
  return low_ ? std::static_pointer_cast<torch::nn::Module>(low_) : full_.ptr();
}

at::Tensor Product::forward(const at::Tensor& x) {
  if (probe_) probe_(layer_.name, x);
  if (low_) return low_->forward(x);
  if (full_.ptr()->is_training()) forget();
  const bool plain = !at::GradMode::is_enabled() && x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous();
  if (!in_order_ || !plain || full_.ptr()->is_training()) return full_.forward(x);
  return layer_.is_conv() ? conv2d_in_order(x) : linear_in_order(x);
}

void Product::forget() {
  const std::lock_guard lock(derived_);
  panels_.reset();
}

at::Tensor Product::conv2d_in_order(const at::Tensor& x) {
  RECORD_USER_SCOPE("float_conv2d");  // profiles see operators and scopes
  auto& conv = *std::dynamic_pointer_cast<torch::nn::Conv2dImpl>(full_.ptr());
  kernels::Conv2dShape shape{x.size(0), x.size(1), x.size(2), x.size(3), layer_.out, layer_.kernel, layer_.kernel};
  shape.stride_h = shape.stride_w = layer_.stride;
  shape.pad_h = shape.pad_w = layer_.padding;
  if (!is_dense(conv.weight) || !is_dense(conv.bias) || x.size(1) != layer_.in || shape.out_h() * shape.out_w() == 0)
    return full_.forward(x);
  const at::Tensor y = at::empty({x.size(0), layer_.out, shape.out_h(), shape.out_w()}, x.options());
  const kernels::Status status =
      kernels::choose(kernels::float_conv2d_table(), shape, kernels::host().isas)
          .run(shape, x.const_data_ptr<float>(), conv.weight.const_data_ptr<float>(), numbers_or_null(conv.bias),
               y.mutable_data_ptr<float>(), ops::torch_parallel());
  TORCH_CHECK(status == kernels::Status::ok, layer_.name, ": ", kernels::describe(status));
  return y;
}

at::Tensor Product::linear_in_order(const at::Tensor& x) {
  RECORD_USER_SCOPE("float_linear");
  auto& linear = *std::dynamic_pointer_cast<torch::nn::LinearImpl>(full_.ptr());
  if (!is_dense(linear.weight) || !is_dense(linear.bias) || x.dim() != 2 || x.size(1) != layer_.in)
    return full_.forward(x);
  const kernels::GemmShape shape{x.size(0), layer_.out, layer_.in};
  const kernels::FloatGemmKernel& kernel = kernels::choose(kernels::float_gemm_table(), shape, kernels::host().isas);
  const at::Tensor y = at::empty({x.size(0), layer_.out}, x.options());
  at::Tensor panels;
  {
    const std::lock_guard lock(derived_);
    if (!(panels_.defined() && panels_of_ == linear.weight)) {
      panels_ =
          at::empty({static_cast<std::int64_t>(kernel.packed_bytes(shape.n, shape.k) / sizeof(float))}, x.options());
      kernel.prepack(linear.weight.const_data_ptr<float>(), shape.n, shape.k, panels_.mutable_data_ptr<float>());
      panels_of_ = layers::Seen(linear.weight);
    }
    panels = panels_;
  }
  const kernels::Status status =
      kernel.run(shape, x.const_data_ptr<float>(), panels.const_data_ptr<float>(), numbers_or_null(linear.bias),
                 y.mutable_data_ptr<float>(), ops::torch_parallel());
  TORCH_CHECK(status == kernels::Status::ok, layer_.name, ": ", kernels::describe(status));
  return y;
}

Block::Block(const ModelConfig& c, const PlannedLayer& l, Activation act)
    : product_(std::make_shared<Product>(c, l, /*bias=*/!c.norm)), act_(act) {
  register_module("product", product_->module());
  // A ReLU or a pool leaves a binary convolution no signs. Without learned numbers, which bias_a and scale_a would only
  // repeat.
  if (c.norm && l.is_conv() && l.bits == 1) {
    signs_norm_ = torch::nn::AnyModule(torch::nn::BatchNorm2d(torch::nn::BatchNormOptions(l.in).affine(false)));
    register_module("signs_norm", signs_norm_.ptr());
  }
  if (c.norm) {
    norm_ = l.is_conv() ? torch::nn::AnyModule(torch::nn::BatchNorm2d(l.out))
                        : torch::nn::AnyModule(torch::nn::BatchNorm1d(l.out));
    register_module("norm", norm_.ptr());
  }
  if (act_ == Activation::prelu) prelu_ = register_module("act", torch::nn::PReLU());
}

at::Tensor Block::forward(const at::Tensor& x, const at::Tensor& shortcut, std::int64_t pool) {
  const at::Tensor product = product_->forward(normalised(signs_norm_, x));
  NormNumbers numbers;
  const TailActivation act = tail_of(act_, prelu_);
  const bool pools = pool == 1 || (product.dim() == 4 && product.size(2) >= pool && product.size(3) >= pool);
  if (!is_training() && pools && has_numbers(norm_, &numbers) && ops::has_block_tail(product, numbers, shortcut, act))
    return ops::block_tail(product, numbers, shortcut, act, pool);
  if (at::Tensor fused = fused_tail(norm_, product, shortcut, act, pool); fused.defined()) return fused;
  at::Tensor y = norm_.is_empty() ? product : norm_.forward(product);
  if (shortcut.defined()) y = y + shortcut;
  y = act_ == Activation::none ? y : act_ == Activation::relu ? y.relu() : prelu_->forward(y);
  return pool == 1 ? y : at::max_pool2d(y, pool);
}

}  // namespace bie::models
