// Which GEMM row is fastest for a shape: measured, and remembered in the tuning file.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/kernels/gemm.h"

namespace bie::ops {

class Tuning {
 public:
  /// A kernel of a table.
  struct Choice {
    const char* name;
    std::int64_t kernel_id;  ///< for BITorch Engine's API
  };
  /// Times the kernels that fit, about 0.1 s at most, and remembers the fastest.
  virtual Choice tune(const char* op, kernels::Dtype code, const kernels::GemmShape& shape,
                      at::Device device) const = 0;

 protected:
  ~Tuning() = default;
};

}  // namespace bie::ops
