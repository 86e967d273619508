// Files may hold NaN and infinity; layers are not given them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <string>
#include <tuple>

namespace bie::nn {

/// A float tensor as it is. @throws c10::ValueError naming `entry` where an element is NaN or infinite.
inline at::Tensor finite(const at::Tensor& tensor, const std::string& entry) {
  if (tensor.numel() == 0) return tensor;
  const auto [least, most] = at::aminmax(tensor.detach());  // both NaN where one element is
  TORCH_CHECK_VALUE(std::isfinite(least.item<double>()) && std::isfinite(most.item<double>()), entry,
                    " holds NaN or infinity");
  return tensor;
}

}  // namespace bie::nn
