// Quantised 2-d convolutions without output bias: [batch, in, h, w] to [batch, out, h', w'], zero padding.
#pragma once

#include <torch/nn/pimpl.h>

#include <array>

#include "bie/nn/quant_layer.h"

namespace bie::nn {

struct QConv2dOptions {
  std::int64_t in_channels, out_channels;
  std::array<std::int64_t, 2> kernel_size;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  ops::GradMode grad_mode = ops::GradMode::exact;
};

/// 8-bit weights and activations; see ops::q8_conv2d. The weight's scale is taken anew in each training forward.
class Q8Conv2dImpl : public QuantLayer {
 public:
  explicit Q8Conv2dImpl(const QConv2dOptions& options);
  at::Tensor forward(const at::Tensor& x) override;
  void prepare_params() override {}
  int weight_bits() const override { return 8; }

 private:
  Packed pack() const override;
  at::Tensor prepack(const at::Tensor& packed) const override;

  QConv2dOptions options_;
};
TORCH_MODULE(Q8Conv2d);

/// 4-bit weights and activations; see ops::q4_conv2d. qweight is [out, kh, kw, in/2] where in is even, else flat rows;
/// its bytes are in the order [in][kh][kw] either way. prepare_params as in Q4Linear.
class Q4Conv2dImpl : public QuantLayer {
 public:
  explicit Q4Conv2dImpl(const QConv2dOptions& options);
  at::Tensor forward(const at::Tensor& x) override;
  void prepare_params() override;
  int weight_bits() const override { return 4; }

 private:
  Packed pack() const override;
  at::Tensor prepack(const at::Tensor& packed) const override;

  QConv2dOptions options_;
  bool prepared_ = false;
};
TORCH_MODULE(Q4Conv2d);

}  // namespace bie::nn
