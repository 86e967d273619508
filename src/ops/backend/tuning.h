// Which GEMM row is fastest for a shape: measured, and remembered in the tuning file.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/kernels/gemm.h"

namespace bie::ops {

class Tuning {
 public:
  /// Times the rows that fit, about 0.1 s at most, remembers the fastest and returns its kernel_id.
  virtual std::int64_t tune(const char* op, kernels::Dtype code, const kernels::GemmShape& shape,
                            at::Device device) const = 0;

 protected:
  ~Tuning() = default;
};

}  // namespace bie::ops
