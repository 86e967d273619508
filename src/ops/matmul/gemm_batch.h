// Many products of one shape: two batches of matrices, paired as torch.matmul broadcasts them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/bridge.h"

namespace bie::ops {

/// How x [..., m, k] and y [..., n, k] pair up.
struct GemmBatch {
  GemmBatch(const at::Tensor& x, const at::Tensor& y);

  /// Batch axes of the products, and of either operand the same axes: of that size, or 1 where it is broadcast. The
  /// last axes along which y is broadcast are none of them: there the rows of x stand below each other.
  at::DimVector sizes, x_sizes, y_sizes;
  kernels::GemmShape shape;  ///< of one product; its m counts those rows

  std::int64_t count() const;
  bool is_empty() const { return count() == 0 || shape.m == 0 || shape.n == 0; }

  /// Dense [count(), rows, columns] of t, whose batch axes are `own` (x_sizes or y_sizes): copied where they are
  /// broadcast.
  at::Tensor entries(const at::Tensor& t, const at::DimVector& own, std::int64_t rows) const;
  /// The reverse for a gradient [count(), rows, columns]: dense and of `shape`, summed where it was broadcast.
  at::Tensor reduced(const at::Tensor& grad, const at::DimVector& own, at::IntArrayRef shape) const;
};

/// Writes all products into out, dense [count(), m, n].
/// @param y  `values` dense in what Weight wants of one matrix; each is arranged once however often it is used.
void run_gemm_batch(const char* op, const GemmTables& tables, const GemmBatch& batch, const at::Tensor& x,
                    const Quantiser& quantiser, const Weight& y, const at::Tensor& out);

}  // namespace bie::ops
