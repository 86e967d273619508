// Sign bits, int4 nibbles and the byte orders of checkpoints. Tensors are dense, and what is written has its size.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/kernels/packing.h"
#include "bie/kernels/sign_layout.h"
#include "ops/checks.h"

namespace bie::ops {

class Packing {
 public:
  /// bias: float32 [k], or undefined.
  virtual void pack_signs(const char* op, const kernels::RowsShape& shape, const Rows& x, const at::Tensor& bias,
                          const at::Tensor& packed) const = 0;
  virtual void unpack_signs(const char* op, const kernels::RowsShape& shape, const at::Tensor& packed,
                            const at::Tensor& signs) const = 0;
  virtual void pack_int4(const char* op, const kernels::RowsShape& shape, const at::Tensor& codes,
                         const at::Tensor& packed) const = 0;
  virtual void unpack_int4(const char* op, const kernels::RowsShape& shape, const at::Tensor& packed,
                           const at::Tensor& codes) const = 0;
  virtual void signs_from_layout(const char* op, const kernels::SignRows& rows, const at::Tensor& bytes,
                                 const at::Tensor& packed) const = 0;
  virtual void signs_to_layout(const char* op, const kernels::SignRows& rows, const at::Tensor& packed,
                               const at::Tensor& bytes) const = 0;

 protected:
  ~Packing() = default;
};

}  // namespace bie::ops
