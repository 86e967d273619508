#include "ops/gradient/nbit_grad.h"

#include <algorithm>
#include <cmath>

#include "ops/backend/backend.h"
#include "ops/backend/gradients.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "backward";

kernels::CodeBounds bounds_of(const CodeRange& range, float floor) {
  return {static_cast<float>(range.lo), static_cast<float>(range.hi), floor};
}

}  // namespace

kernels::InputRule code_rule(const at::Tensor& xs, const CodeRange& range, GradMode mode, float floor) {
  const bool exact = mode == GradMode::exact;
  const double count = static_cast<double>(std::max<std::int64_t>(1, xs.numel()));
  return {false, bounds_of(range, floor), {exact, !exact && range.hi == q8_range.hi, std::sqrt(count * range.hi)}};
}

WeightStep weight_step(const char* op, const at::Tensor& weight, const at::Tensor& scale_w, double eps,
                       const CodeRange& range) {
  const float floor = static_cast<float>(eps);
  if (scale_w.defined()) return {scale_of(op, "scale_w", scale_w, weight.device()), floor};
  // The 4-bit layer's scale_w includes the floor.
  const float least = range.hi == q4_range.hi ? floor : 0.0f;
  return {mean_scale(op, "the weight", weight, range.mean_to_step, least), floor};
}

at::Tensor quantized_values(const at::Tensor& x, const Scale& scale, float floor, const CodeRange& range,
                            const Scale& by, at::ScalarType dtype) {
  return backend_of(op_name, x).gradients.quantized_values(x, scale, bounds_of(range, floor), by, dtype);
}

at::Tensor code_values(const at::Tensor& codes, const Scale& scale, at::ScalarType dtype) {
  return backend_of(op_name, codes).gradients.code_values(codes, scale, dtype);
}

at::Tensor mask_clipped(at::Tensor grad, const at::Tensor& weight, const WeightStep& step, const CodeRange& range) {
  grad = grad.contiguous();
  backend_of(op_name, grad).gradients.mask_clipped(grad, weight.contiguous(), step.scale, bounds_of(range, step.floor));
  return grad;
}

}  // namespace bie::ops
