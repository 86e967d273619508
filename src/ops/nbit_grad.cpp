#include "ops/nbit_grad.h"

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

namespace bie::ops {

QuantizerGrad quantizer_backward(const at::Tensor& xs, const at::Tensor& up, const at::Tensor& scale_a,
                                 const CodeRange& range, GradMode mode) {
  const float step = scale_value("backward", "scale_a", scale_a);
  TORCH_CHECK_VALUE(step != 0, "backward: scale_a is 0, training wants it initialised (init_scale_)");
  const at::Tensor v = xs.div(step);
  const at::Tensor clipped = v.clamp(range.lo, range.hi);
  const at::Tensor inside = v.eq(clipped);
  // rint(v) - v inside; outside the clipped value is the bound itself.
  const at::Tensor term = at::where(inside, v.round().sub_(v), clipped);
  at::Tensor grad_xs = up.mul(inside);
  if (mode == GradMode::reference && range.hi == 127) grad_xs.mul_(step);
  const at::Tensor& factor = mode == GradMode::exact ? up : grad_xs;
  const double sum = term.mul(factor).sum(at::kDouble).item<double>();
  const double count = static_cast<double>(xs.numel()) * range.hi;
  return {grad_xs, at::full(scale_a.sizes(), sum / std::sqrt(count), scale_a.options())};
}

WeightCodes quantize_weight(const char* op, const at::Tensor& weight, const at::Tensor& scale_w, double eps,
                            const CodeRange& range) {
  const float floor = static_cast<float>(eps);
  if (scale_w.defined()) {
    const float step = std::max(scale_value(op, "scale_w", scale_w), floor);
    return {quantize_codes(op, weight, step, range), scale_w};
  }
  float step = mean_step(op, weight, range.mean_to_step);
  TORCH_CHECK_VALUE(std::isfinite(step), op, ": the weight holds NaN or infinity");
  if (range.hi == q4_range.hi) step = std::max(step, floor);  // the 4-bit layer's scale_w includes the floor
  return {quantize_codes(op, weight, std::max(step, floor), range),
          at::full({}, step, weight.options().dtype(at::kFloat))};
}

at::Tensor mask_clipped(const at::Tensor& grad, const at::Tensor& weight, float step, const CodeRange& range) {
  const at::Tensor v = weight.to(at::kFloat).div(step);
  return grad.mul(v.ge(range.lo).logical_and_(v.le(range.hi)));
}

}  // namespace bie::ops
