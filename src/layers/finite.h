// NaN and infinity in tensors: files and gradients may hold them, layers and checkpoints are not given them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>

#include "bie/ops/weight_rules.h"

namespace bie::layers {

/// A float tensor as it is. @throws c10::ValueError naming `entry` where an element is NaN or infinite.
inline at::Tensor finite(const at::Tensor& tensor, const std::string& entry) {
  TORCH_CHECK_VALUE(ops::all_finite(tensor), entry, " holds NaN or infinity");
  return tensor;
}

}  // namespace bie::layers
