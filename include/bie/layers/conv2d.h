// Quantised 2-d convolutions: [batch, in, h, w] to [batch, out, h', w'].
#pragma once

#include <torch/nn/pimpl.h>

#include <array>

#include "bie/layers/binary_layer.h"
#include "bie/layers/nbit_layer.h"

namespace bie::layers {

struct BinaryConv2dOptions {
  std::int64_t in_channels, out_channels;
  std::array<std::int64_t, 2> kernel_size;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;          ///< divides both numbers of channels
  std::int64_t padding_value = -1;  ///< as BITorch Engine pads; 0 for what every float convolution does
  bool latent = false;              ///< as in BinaryLinearOptions
  bool bias = false;                ///< an output bias
  bool symmetric = true;            ///< as in BinaryLinearOptions
};

/// 1-bit weights and activations; see ops::binary_conv2d. qweight is [out, kh, kw, in/groups/8] where that divides,
/// else flat rows; its bytes are in the order [in][kh][kw] either way.
class BinaryConv2dImpl : public BinaryLayer {
 public:
  explicit BinaryConv2dImpl(const BinaryConv2dOptions& options);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  at::Tensor prepack(const at::Tensor& packed) const override;
  void check_input(const at::Tensor& x) const override;

  BinaryConv2dOptions options_;
};
TORCH_MODULE(BinaryConv2d);

struct QConv2dOptions {
  std::int64_t in_channels, out_channels;
  std::array<std::int64_t, 2> kernel_size;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;  ///< divides both numbers of channels
  bool latent = true;       ///< as in QLinearOptions
  bool bias = false;        ///< an output bias
  ops::GradMode grad_mode = ops::GradMode::exact;
  bool channel_scales = false;  ///< as in QLinearOptions, for each output channel
};

/// 8- or 4-bit weights and activations, zero padding; see ops::q8_conv2d and ops::q4_conv2d.
class QConv2dImpl : public NbitLayer {
 public:
  QConv2dImpl(int bits, const QConv2dOptions& options);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  at::Tensor prepack(const at::Tensor& packed) const override;
  void check_input(const at::Tensor& x) const override;

  QConv2dOptions options_;
};

/// qweight is [out, in/groups, kh, kw] int8.
class Q8Conv2dImpl : public QConv2dImpl {
 public:
  explicit Q8Conv2dImpl(const QConv2dOptions& options) : QConv2dImpl(8, options) {}
};
TORCH_MODULE(Q8Conv2d);

/// qweight is [out, kh, kw, in/groups/2] where that divides, else flat rows; its bytes are in the order [in][kh][kw]
/// either way.
class Q4Conv2dImpl : public QConv2dImpl {
 public:
  explicit Q4Conv2dImpl(const QConv2dOptions& options) : QConv2dImpl(4, options) {}
};
TORCH_MODULE(Q4Conv2d);

}  // namespace bie::layers
