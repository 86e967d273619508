#include "ops/backend/scales.h"

#include <cmath>
#include <string>

#include "ops/checks.h"

namespace bie::ops {

float scale_value(const char* op, const char* name, const at::Tensor& scale) {
  TORCH_CHECK_VALUE(scale.defined() && scale.numel() == 1, op, ": ", name, ": expected one element, got ",
                    scale.defined() ? c10::str(scale.sizes()) : std::string("none"));
  float value = 0;
  if (scale.scalar_type() == at::kFloat) {
    value = *scale.const_data_ptr<float>();
  } else {
    check_float(op, name, scale);
    value = scale.item<float>();
  }
  TORCH_CHECK_VALUE(std::isfinite(value), op, ": ", name, ": expected a finite number, got ", value);
  return value;
}

Scale scale_of(const char* op, const char* name, const at::Tensor& scale, at::Device where) {
  TORCH_CHECK_VALUE(scale.defined() && scale.numel() == 1, op, ": ", name, ": expected one element, got ",
                    scale.defined() ? c10::str(scale.sizes()) : std::string("none"));
  TORCH_CHECK_VALUE(scale.device() == where || (where.is_cuda() && scale.is_cpu() && scale.dim() == 0), op, ": ", name,
                    " is on ", scale.device(), ", the other tensors on ", where);
  if (!scale.is_cuda()) return {scale_value(op, name, scale), {}};
  check_float(op, name, scale);
  return {0, scale.detach().to(at::kFloat)};
}

at::Tensor Scaled::multiplied() const {
  if (scale.device.defined()) return values.mul_(scale.device.reshape(at::IntArrayRef()));
  return scale.value == 1 ? values : values.mul_(scale.value);
}

}  // namespace bie::ops
