// The two products of a convolution's backward pass, and on CUDA what it does besides.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "ops/backend/cuda/mixed_product.h"
#include "ops/conv2d/conv2d_geometry.h"
#include "ops/gradient/input_grad.h"

namespace bie::ops {

/// Gradients of the image and of the filter, products of g with `values` and `filter`, undefined where not wanted. On
/// CUDA both are codes, which TF32 holds exactly: where it is allowed a float32 gradient goes through the tensor cores
/// in two parts, which hold it to 2^-23.
std::tuple<at::Tensor, at::Tensor> convolution_grads(const at::Tensor& g, const at::Tensor& values,
                                                     const at::Tensor& filter, const Movement& move, bool want_x,
                                                     bool want_weight);

/// The gradient g [batch, out_c, out_h, out_w] of a convolution's output on CUDA against codes of some scale, in
/// float32: on sm_90 without a copy of them as floats where the kernels of mixed_product.h fit, else by
/// convolution_grads.
class ConvOutputGrad {
 public:
  ConvOutputGrad(const char* op, const at::Tensor& g, const Movement& move);

  /// Of an image of these sizes [batch, in_c, in_h, in_w], sent back through a filter [out_c, in_c/groups, kh, kw]: in
  /// channels_last.
  Scaled through(const Codes& filter, const Scale& scale, at::IntArrayRef image) const;
  /// Of a filter of these sizes, dense: against the codes of the image, with that padding of zeros.
  Scaled against(const at::Tensor& image, const Scale& scale, at::IntArrayRef filter, at::IntArrayRef padding) const;

 private:
  kernels::cuda::MixedProduct product(kernels::cuda::MixedProduct::Kind kind, at::IntArrayRef image,
                                      at::IntArrayRef filter, at::IntArrayRef padding) const;

  const char* op_;
  at::Tensor g_;
  Movement move_;
  std::vector<at::Tensor> parts_;  ///< their sum is g, in channels_last
};

/// The activation of a convolution on CUDA as that of a linear layer of its channels: [batch, in_h, in_w, in_c].
LinearInput pixels_of(const at::Tensor& x, const at::Tensor& bias, const OptTensor& bias_a, const at::Tensor& scale_a,
                      const Scale& scale);
/// Pixels [batch, in_h, in_w, in_c], or as many rows of channels, as an image of these sizes in channels_last.
at::Tensor image_of(const at::Tensor& pixels, at::IntArrayRef sizes);

}  // namespace bie::ops
