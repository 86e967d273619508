// Quantised fully connected layers: [..., in] to [..., out].
#pragma once

#include <torch/nn/pimpl.h>

#include "bie/layers/binary_layer.h"
#include "bie/layers/nbit_layer.h"

namespace bie::layers {

struct BinaryLinearOptions {
  std::int64_t in_features, out_features;
  bool latent = false;    ///< keep the weight as a float that any optimizer trains, instead of int8 for DiodeMix
  bool bias = false;      ///< an output bias, as converted torch::nn::Linear layers have
  bool symmetric = true;  ///< the first batch sets scale_a to 2 * mean|x|; 4 * mean|x| if not
};

/// 1-bit weights and activations; see ops::binary_linear.
class BinaryLinearImpl : public BinaryLayer {
 public:
  explicit BinaryLinearImpl(const BinaryLinearOptions& options);
  BinaryLinearImpl(std::int64_t in_features, std::int64_t out_features)
      : BinaryLinearImpl(BinaryLinearOptions{in_features, out_features}) {}
  at::Tensor forward(const at::Tensor& x) override;

  /// Times the kernels of this machine on batches like x and keeps the fastest; before training or inference starts.
  void select_gemm_kernel(const at::Tensor& x);
  /// 0 to 99: automatic. Ids from 100 name kernels of the table; one that does not fit is automatic.
  std::int64_t gemm_kernel_id() const { return gemm_kernel_id_; }
  void set_gemm_kernel_id(std::int64_t id);

 private:
  at::Tensor prepack(const at::Tensor& packed) const override;

  BinaryLinearOptions options_;
  std::int64_t gemm_kernel_id_ = 3;
};
TORCH_MODULE(BinaryLinear);

struct QLinearOptions {
  std::int64_t in_features, out_features;
  bool latent = true;  ///< keep the weight as a float that any optimizer trains; else int8 codes for DiodeMix
  bool bias = false;   ///< an output bias
  ops::GradMode grad_mode = ops::GradMode::exact;
  bool channel_scales = false;  ///< a scale for each output, beside scale_w: IntegerLayer::channel_scale
};

/// 8- or 4-bit weights and activations; see ops::q8_linear and ops::q4_linear.
class QLinearImpl : public NbitLayer {
 public:
  QLinearImpl(int bits, const QLinearOptions& options);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  at::Tensor prepack(const at::Tensor& packed) const override;

  QLinearOptions options_;
};

/// qweight is [out, in] int8.
class Q8LinearImpl : public QLinearImpl {
 public:
  explicit Q8LinearImpl(const QLinearOptions& options) : QLinearImpl(8, options) {}
  Q8LinearImpl(std::int64_t in_features, std::int64_t out_features)
      : Q8LinearImpl(QLinearOptions{in_features, out_features}) {}
};
TORCH_MODULE(Q8Linear);

/// qweight is [out, ceil(in/2)] int8.
class Q4LinearImpl : public QLinearImpl {
 public:
  explicit Q4LinearImpl(const QLinearOptions& options) : QLinearImpl(4, options) {}
  Q4LinearImpl(std::int64_t in_features, std::int64_t out_features)
      : Q4LinearImpl(QLinearOptions{in_features, out_features}) {}
};
TORCH_MODULE(Q4Linear);

}  // namespace bie::layers
