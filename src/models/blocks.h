// Building blocks of the classifiers: a linear or convolution of some width, and the epilogue behind it.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bie/layers/seen.h"
#include "bie/models/classifier.h"
#include "bie/runtime/net_builder.h"
#include "models/model_plan.h"

namespace bie::models {

/// A linear or convolution, float or quantised. A float one of a net with quantised layers computes in evaluation on
/// the CPU with float_gemm's written order of the sum, so that the net gives the same logits on every machine, and
/// where it is exported; else it is torch's.
class Product {
 public:
  /// @param bias  an output bias.
  Product(const ModelConfig& config, const PlannedLayer& layer, bool bias);

  at::Tensor forward(const at::Tensor& x);
  /// trace() emits, here and below, the nodes of a net that compute what forward computes in evaluation.
  runtime::Symbol trace(runtime::NetBuilder& net, runtime::Symbol x) const;
  std::shared_ptr<torch::nn::Module> module() const;
  const std::shared_ptr<layers::IntegerLayer>& low() const { return low_; }  ///< undefined for a float one
  const std::string& name() const { return layer_.name; }
  void set_probe(Probe probe) { probe_ = std::move(probe); }

 private:
  /// In training: optimizers of torch's C++ write through data(), which counts no version.
  void forget();
  at::Tensor conv2d_in_order(const at::Tensor& x);
  at::Tensor linear_in_order(const at::Tensor& x);

  PlannedLayer layer_;
  bool in_order_;
  std::mutex derived_;  // the next two, derived in evaluation
  at::Tensor panels_;
  layers::Seen panels_of_;
  torch::nn::AnyModule full_;
  std::shared_ptr<layers::IntegerLayer> low_;
  Probe probe_;
};

/// BatchNorm, in evaluation in one pass.
at::Tensor normalised(torch::nn::AnyModule& norm, const at::Tensor& x);
runtime::Symbol traced_norm(runtime::NetBuilder& net, const torch::nn::AnyModule& norm, runtime::Symbol x);

/// The mean of each channel: [images, channels]. In evaluation with a written order of the sum.
at::Tensor channel_means(const at::Tensor& x, bool training);

/// A product, BatchNorm where the model has it (the product has an output bias where not), an activation function, in
/// front of which a shortcut may be added. A binary convolution of such a model reads normalised features.
class Block : public torch::nn::Module {
 public:
  Block(const ModelConfig& config, const PlannedLayer& layer, Activation act = Activation::prelu);
  /// @param pool  the largest of each pool x pool square of the result is kept, 1: all.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& shortcut = {}, std::int64_t pool = 1);
  runtime::Symbol trace(runtime::NetBuilder& net, runtime::Symbol x, std::optional<runtime::Symbol> shortcut = {},
                        std::int64_t pool = 1) const;
  const std::shared_ptr<Product>& product() const { return product_; }
  std::shared_ptr<torch::nn::Module> norm() const { return norm_.is_empty() ? nullptr : norm_.ptr(); }

 private:
  std::shared_ptr<Product> product_;
  torch::nn::AnyModule signs_norm_, norm_;
  Activation act_;
  torch::nn::PReLU prelu_{nullptr};
};

}  // namespace bie::models
