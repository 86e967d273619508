// The gradient of a linear layer's or a batched product's output in the two products of its backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "ops/backend/cuda/mixed_product.h"
#include "ops/bridge.h"

namespace bie::ops {

/// g [m, n] against codes: whole numbers of at most nine bits. Both products are float32, on CUDA the codes' scale may
/// be left to the pass behind them. With a batch axis in front of g and of the codes each entry is a product of its
/// own.
///
/// On the CPU float32 is multiplied. On CUDA the tensor cores multiply 16-bit floats, which hold codes exactly, and add
/// in float32: a 16-bit g as it is, a float32 one as the sum of three bfloat16 parts, 24 bits, one product each. GPUs
/// before sm_80 multiply float32.
class OutputGrad {
 public:
  OutputGrad(const char* op, const at::Tensor& g);

  /// (g . codes) * scale of codes [n, k] on CUDA.
  Scaled times(const Codes& codes, const Scale& scale) const { return product_of(codes, scale, false); }
  /// (g^T . codes) * scale of codes [m, k] on CUDA.
  Scaled transposed_times(const Codes& codes, const Scale& scale) const { return product_of(codes, scale, true); }

  /// (g . codes) * scale, codes = values(operand, dtype, by) / by of an operand [n, k]. values() may be asked for some
  /// columns of the operand at a time, and with a `by` of 1 on CUDA.
  template <class Values>
  Scaled times(const at::Tensor& operand, const Values& values, const Scale& scale) const {
    return multiplied(operand, values, scale, /*transposed=*/false);
  }
  /// (g^T . codes) * scale, of an operand [m, k].
  template <class Values>
  Scaled transposed_times(const at::Tensor& operand, const Values& values, const Scale& scale) const {
    return multiplied(operand, values, scale, /*transposed=*/true);
  }

 private:
  template <class Values>
  Scaled multiplied(const at::Tensor& operand, const Values& values, const Scale& scale, bool transposed) const {
    const at::ScalarType dtype = parts_[0].scalar_type();
    if (parts_[0].is_cuda()) return {product(values(operand, dtype, unit_scale), transposed), scale};
    const std::int64_t all = operand.size(-1), columns = columns_at_once(operand);
    if (columns >= all) return {product(values(operand, dtype, scale), transposed)};
    const at::Tensor result = empty_product(all, transposed);
    for (std::int64_t first = 0; first < all; first += columns) {
      const std::int64_t count = std::min(columns, all - first);
      const at::Tensor some = operand.narrow(-1, first, count).contiguous();
      multiply_into(result.narrow(-1, first, count), values(some, dtype, scale), transposed);
    }
    return {result};
  }

  /// Of codes where the GPU has a kernel for that, else of the codes as floats.
  Scaled product_of(const Codes& codes, const Scale& scale, bool transposed) const;
  at::Tensor product(const at::Tensor& values, bool transposed) const;
  /// On the CPU a large operand is opened a few columns at a time, so that its float32 values stay near the core.
  std::int64_t columns_at_once(const at::Tensor& operand) const;
  at::Tensor empty_product(std::int64_t columns, bool transposed) const;
  void multiply_into(at::Tensor columns, const at::Tensor& codes, bool transposed) const;

  const char* op_;
  std::vector<at::Tensor> parts_;  ///< their sum is g
};

}  // namespace bie::ops
