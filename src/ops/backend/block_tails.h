// Evaluation epilogue of a product, by device.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/ops.h"

namespace bie::ops {

class BlockTails {
 public:
  /// Whether run() is one pass over x.
  virtual bool in_one_pass() const = 0;
  /// Writes y in x's memory format: contiguous unless x is dense in channels_last.
  virtual void run(const char* op, const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                   const TailActivation& act, std::int64_t pool, const at::Tensor& y) const = 0;

 protected:
  ~BlockTails() = default;
};

}  // namespace bie::ops
