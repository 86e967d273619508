// The gradient of a linear layer's or a batched product's output in the two products of its backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/bridge.h"

namespace bie::ops {

/// g [m, n] against codes: whole numbers of at most nine bits. Both products are float32. With a batch axis in front of
/// g and of the codes each entry is a product of its own.
///
/// On the CPU float32 is multiplied. On CUDA the tensor cores multiply 16-bit floats, which hold codes exactly, and add
/// in float32: a 16-bit g as it is, a float32 one as the sum of three bfloat16 parts, 24 bits, one product each. GPUs
/// before sm_80 multiply float32.
class OutputGrad {
 public:
  OutputGrad(const char* op, const at::Tensor& g);

  /// (g . codes) * scale. values(dtype, by) makes codes * by, [n, k], with a `by` that leaves them exact in `dtype`.
  template <class Values>
  at::Tensor times(const Values& values, const Scale& scale) const {
    return scaled(product(values(codes_, factor(scale)), false), scale);
  }
  /// (g^T . codes) * scale, of codes [m, k].
  template <class Values>
  at::Tensor transposed_times(const Values& values, const Scale& scale) const {
    return scaled(product(values(codes_, factor(scale)), true), scale);
  }

 private:
  bool exact() const { return codes_ != at::kFloat; }
  const Scale& factor(const Scale& scale) const { return exact() ? unit_scale : scale; }
  at::Tensor scaled(at::Tensor product, const Scale& scale) const;
  at::Tensor product(const at::Tensor& codes, bool transposed) const;

  at::ScalarType codes_ = at::kFloat;
  std::vector<at::Tensor> parts_;  ///< their sum is g
};

}  // namespace bie::ops
