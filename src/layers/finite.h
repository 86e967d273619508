// NaN and infinity in tensors: files and gradients may hold them, layers and checkpoints are not given them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <string>
#include <tuple>

namespace bie::layers {

/// Whether no element is NaN or infinite, in one pass.
inline bool is_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  const auto [least, most] = at::aminmax(tensor.detach());  // both NaN where one element is
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

/// A float tensor as it is. @throws c10::ValueError naming `entry` where an element is NaN or infinite.
inline at::Tensor finite(const at::Tensor& tensor, const std::string& entry) {
  TORCH_CHECK_VALUE(is_finite(tensor), entry, " holds NaN or infinity");
  return tensor;
}

}  // namespace bie::layers
