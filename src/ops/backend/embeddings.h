// Tables of signs behind the operators' checks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "bie/ops.h"

namespace bie::ops {

class Embeddings {
 public:
  /// +-scale of each index [count] (int64, in range) into y [count, dim]; zeros where it is `padding`. table: uint8
  /// [rows, ceil(dim / 8)] packed signs; scale: float32 [rows].
  virtual void lookup(const char* op, const at::Tensor& table, const at::Tensor& scale, const at::Tensor& indices,
                      std::int64_t padding, const at::Tensor& y) const = 0;
  /// kernels/embedding.h's step on rows (int64, all different, in range) of packed signs or bools, in place; votes
  /// float32 [count, dim].
  virtual void step(const char* op, const at::Tensor& table, const at::Tensor& rows, const at::Tensor& votes,
                    const at::Tensor& moment, const DiodeMixStep& o) const = 0;

 protected:
  ~Embeddings() = default;
};

}  // namespace bie::ops
