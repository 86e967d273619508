// Many products of one shape: two batches of matrices, paired as torch.matmul broadcasts them.
//
// The second operand is quantised in one pass, and each of its matrices is arranged once, however often broadcasting
// uses it. Small products run side by side, large ones one after the other on all threads. On CUDA each product is a
// call of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bie/kernels/gemm.h"

namespace bie::ops {

/// How x [..., m, k] and y [..., n, k] pair up.
struct GemmBatch {
  GemmBatch(const at::Tensor& x, const at::Tensor& y);

  /// Batch axes of the products, and of either operand the same axes: of that size, or 1 where it is broadcast. The
  /// last axes along which y is broadcast are none of them: there the rows of x stand below each other.
  at::DimVector sizes, x_sizes, y_sizes;
  kernels::GemmShape shape;  ///< of one product; its m counts those rows

  std::int64_t count() const;
  /// The number of the matrix of y in each product.
  std::vector<std::int64_t> y_numbers() const;
  bool is_empty() const { return count() == 0 || shape.m == 0 || shape.n == 0; }

  /// Dense [count(), rows, columns] of t, whose batch axes are `own` (x_sizes or y_sizes): copied where they are
  /// broadcast.
  at::Tensor entries(const at::Tensor& t, const at::DimVector& own, std::int64_t rows) const;
  /// The reverse for a gradient [count(), rows, columns]: dense and of `shape`, summed where it was broadcast.
  at::Tensor reduced(const at::Tensor& grad, const at::DimVector& own, at::IntArrayRef shape) const;
};

/// The rows of x, and where the first of each product lies; copied only where they are not dense.
struct BatchRows {
  BatchRows(const GemmBatch& batch, const at::Tensor& x);

  at::Tensor data;
  std::int64_t stride;  ///< elements
  std::vector<std::int64_t> offsets;
};

}  // namespace bie::ops
