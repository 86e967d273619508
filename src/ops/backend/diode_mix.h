// The steps of DiodeMix behind the operators' checks: items on one device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "bie/ops.h"

namespace bie::ops {

class DiodeMixSteps {
 public:
  using Items = std::vector<DiodeMixItem>;

  virtual void floats(const char* op, const Items& items, const DiodeMixStep& o) const = 0;
  /// On CUDA steps of integer weights are left out whose gradient is not finite: one of floats that holds NaN or
  /// infinity, or one of zeros, which is what int8_grad makes of it.
  virtual void codes(const char* op, const Items& items, const DiodeMixStep& o) const = 0;
  virtual void signs(const char* op, const Items& items, const DiodeMixStep& o) const = 0;
  virtual void first_moment(const char* op, const at::Tensor& signs, std::uint64_t random,
                            const at::Tensor& moment) const = 0;

 protected:
  ~DiodeMixSteps() = default;
};

}  // namespace bie::ops
