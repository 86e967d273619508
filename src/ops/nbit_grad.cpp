#include "ops/nbit_grad.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace bie::ops {

at::Tensor quantizer_backward_(at::Tensor& up, const at::Tensor& xs, const at::Tensor& scale_a, float divisor,
                               const CodeRange& range, GradMode mode) {
  const float step = scale_value("backward", "scale_a", scale_a);
  const bool exact = mode == GradMode::exact;
  const float lo = static_cast<float>(range.lo), hi = static_cast<float>(range.hi);
  const float gain = !exact && range.hi == q8_range.hi ? step : 1.0f;
  const float* x = xs.const_data_ptr<float>();
  float* g = up.mutable_data_ptr<float>();
  const double sum = sum_of_terms(xs.numel(), [&](std::int64_t begin, std::int64_t end, float* terms) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float v = x[i] / divisor;
      const float inside = inside_range(v, lo, hi);
      // Outside, the clamped value is the bound itself.
      const float code = round_clamped(v, lo, hi);
      const float grad = g[i] * gain * inside;
      terms[i - begin] = (code - v * inside) * (exact ? g[i] : grad);
      g[i] = grad;
    }
  });
  const double count = static_cast<double>(std::max<std::int64_t>(1, xs.numel())) * range.hi;
  return at::full(scale_a.sizes(), step == 0 ? 0 : sum / std::sqrt(count), scale_a.options());
}

WeightStep weight_step(const char* op, const at::Tensor& weight, const at::Tensor& scale_w, double eps,
                       const CodeRange& range) {
  const float floor = static_cast<float>(eps);
  if (scale_w.defined()) {
    const float scale = scale_value(op, "scale_w", scale_w);
    return {std::max(scale, floor), scale};
  }
  const float step = mean_step(op, weight, range.mean_to_step);
  TORCH_CHECK_VALUE(std::isfinite(step), op, ": the weight holds NaN or infinity");
  const float lifted = std::max(step, floor);
  return {lifted, range.hi == q4_range.hi ? lifted : step};  // the 4-bit layer's scale_w includes the floor
}

at::Tensor quantized_values(const at::Tensor& x, float step, float scale, const CodeRange& range) {
  at::Tensor values = at::empty_like(x);
  const float lo = static_cast<float>(range.lo), hi = static_cast<float>(range.hi);
  const float* from = x.const_data_ptr<float>();
  float* to = values.mutable_data_ptr<float>();
  for_ranges(x.numel(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = round_clamped(from[i] / step, lo, hi) * scale;
  });
  return values;
}

at::Tensor code_values(const at::Tensor& codes, float scale) {
  const at::Tensor dense = codes.contiguous();
  at::Tensor values = at::empty(codes.sizes(), codes.options().dtype(at::kFloat));
  const std::int8_t* from = dense.const_data_ptr<std::int8_t>();
  float* to = values.mutable_data_ptr<float>();
  for_ranges(codes.numel(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[i]) * scale;
  });
  return values;
}

at::Tensor mask_clipped(at::Tensor grad, const at::Tensor& weight, float step, const CodeRange& range) {
  grad = grad.contiguous();
  const at::Tensor dense = weight.contiguous();
  const float lo = static_cast<float>(range.lo), hi = static_cast<float>(range.hi);
  const float* w = dense.const_data_ptr<float>();
  float* g = grad.mutable_data_ptr<float>();
  for_ranges(grad.numel(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) g[i] *= inside_range(w[i] / step, lo, hi);
  });
  return grad;
}

}  // namespace bie::ops
