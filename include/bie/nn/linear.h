// Quantised fully connected layers. Drop-ins for torch::nn::Linear without output bias: [..., in] to [..., out].
#pragma once

#include <torch/nn/pimpl.h>

#include "bie/nn/quant_layer.h"

namespace bie::nn {

struct BinaryLinearOptions {
  std::int64_t in_features, out_features;
  bool latent = false;  ///< keep the weight as a float that any optimizer trains, instead of int8 for DiodeMix
};

/// 1-bit weights and activations; see ops::binary_linear. scale_a starts as 2 * mean|x| of the first batch.
/// An unprepared layer prepares itself on its first training forward: weight becomes int8, scale_w = mean|weight|.
class BinaryLinearImpl : public QuantLayer {
 public:
  explicit BinaryLinearImpl(const BinaryLinearOptions& options);
  BinaryLinearImpl(std::int64_t in_features, std::int64_t out_features)
      : BinaryLinearImpl(BinaryLinearOptions{in_features, out_features}) {}
  at::Tensor forward(const at::Tensor& x) override;
  void prepare_params() override;
  int weight_bits() const override { return 1; }

 private:
  Packed pack() const override;
  at::Tensor prepack(const at::Tensor& packed) const override;

  BinaryLinearOptions options_;
};
TORCH_MODULE(BinaryLinear);

struct QLinearOptions {
  std::int64_t in_features, out_features;
  ops::GradMode grad_mode = ops::GradMode::exact;
};

/// 8-bit weights and activations; see ops::q8_linear. The weight stays float in training, its scale is taken anew in
/// each forward pass. scale_a starts as 2 * mean|x| / 11.269 of the first batch.
class Q8LinearImpl : public QuantLayer {
 public:
  explicit Q8LinearImpl(const QLinearOptions& options);
  Q8LinearImpl(std::int64_t in_features, std::int64_t out_features)
      : Q8LinearImpl(QLinearOptions{in_features, out_features}) {}
  at::Tensor forward(const at::Tensor& x) override;
  void prepare_params() override {}
  int weight_bits() const override { return 8; }

 private:
  Packed pack() const override;
  at::Tensor prepack(const at::Tensor& packed) const override;

  QLinearOptions options_;
};
TORCH_MODULE(Q8Linear);

/// 4-bit weights and activations; see ops::q4_linear. prepare_params fixes scale_w = max(2 * mean|w| / 5.6345, eps);
/// an unprepared layer prepares itself on its first training forward.
class Q4LinearImpl : public QuantLayer {
 public:
  explicit Q4LinearImpl(const QLinearOptions& options);
  Q4LinearImpl(std::int64_t in_features, std::int64_t out_features)
      : Q4LinearImpl(QLinearOptions{in_features, out_features}) {}
  at::Tensor forward(const at::Tensor& x) override;
  void prepare_params() override;
  int weight_bits() const override { return 4; }

 private:
  Packed pack() const override;
  at::Tensor prepack(const at::Tensor& packed) const override;

  QLinearOptions options_;
  bool prepared_ = false;
};
TORCH_MODULE(Q4Linear);

}  // namespace bie::nn
