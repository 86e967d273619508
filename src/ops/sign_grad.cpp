#include "ops/sign_grad.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "bie/kernels/cuda/gradient.h"
#include "ops/cuda_call.h"
#include "ops/elementwise.h"
#include "ops/vector_clones.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "backward";

inline float sign(float v) { return static_cast<float>(v > 0) - static_cast<float>(v < 0); }

BIE_VECTOR_CLONES void sign_pass(const float* from, float* to, std::int64_t count, float by) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = sign(from[i]) * by;
}

BIE_VECTOR_CLONES void sign_of_codes_pass(const std::int8_t* from, float* to, std::int64_t count, float by) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>((from[i] > 0) - (from[i] < 0)) * by;
}

/// The straight-through estimator; g becomes the gradient, terms those of the step size.
BIE_VECTOR_CLONES void estimator_pass(const float* v, float* g, float* terms, std::int64_t count, float gain,
                                      float divisor) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float grad = g[i] * gain * inside_range(v[i] / divisor, -1, 1);
    terms[i] = grad * sign(v[i]);
    g[i] = grad;
  }
}

double denominator(const at::Tensor& xs) {
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(1, xs.numel())));
}

[[maybe_unused]] InputGrads cuda_grads(const Scaled& up, const LinearInput& in, const at::Tensor& grad_x,
                                       bool want_codes) {
  if constexpr (with_cuda)
    return cuda_input_grads(op_name, up, in, grad_x, want_codes,
                            [&](const CudaCall& call, const kernels::cuda::InputPass& pass, void* workspace) {
                              call(kernels::cuda::sign_backward, pass, in.scale.scalar(), denominator(in.x), workspace);
                            });
  return {};
}

}  // namespace

at::Tensor sign_values(const at::Tensor& t, const Scale& scale, at::ScalarType dtype) {
  const at::MemoryFormat layout = t.suggest_memory_format();
  const at::Tensor dense = t.contiguous(layout);
  at::Tensor signs = at::empty(dense.sizes(), dense.options().dtype(dtype), layout);
  if constexpr (with_cuda) {
    if (t.is_cuda()) {
      const CudaCall call(op_name, t.device());
      call(kernels::cuda::sign_values, dense.const_data_ptr(), kernel_dtype(op_name, "a tensor of signs", t), t.numel(),
           scale.scalar(), signs.mutable_data_ptr(), kernel_dtype(op_name, "signs", signs));
      return signs;
    }
  }
  float* to = signs.mutable_data_ptr<float>();
  const float by = scale.value;
  if (dense.scalar_type() == at::kChar) {
    const std::int8_t* from = dense.const_data_ptr<std::int8_t>();
    for_ranges(dense.numel(), [=](std::int64_t begin, std::int64_t end) {
      sign_of_codes_pass(from + begin, to + begin, end - begin, by);
    });
    return signs;
  }
  const at::Tensor floats = dense.to(at::kFloat);
  const float* from = floats.const_data_ptr<float>();
  for_ranges(floats.numel(),
             [=](std::int64_t begin, std::int64_t end) { sign_pass(from + begin, to + begin, end - begin, by); });
  return signs;
}

Codes codes_of_signs(const at::Tensor& t) {
  if (t.scalar_type() == at::kChar) return {t, /*signs=*/true};
  return {sign_values(t, unit_scale, at::kChar)};
}

at::Tensor sign_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& sa) {
  if constexpr (with_cuda)
    if (xs.is_cuda()) return cuda_grads(up, {xs, {}, {}, scale_a, sa}, up.values, false).scale_a;
  const float* v = xs.const_data_ptr<float>();
  float* g = up.values.mutable_data_ptr<float>();
  const float gain = up.scale.value, divisor = sa.value == 0 ? FLT_MIN : sa.value;
  const double sum = sum_of_terms(xs.numel(), [=](std::int64_t begin, std::int64_t end, float* terms) {
    estimator_pass(v + begin, g + begin, terms, end - begin, gain, divisor);
  });
  return at::full(scale_a.sizes(), sum / denominator(xs), scale_a.options());
}

InputGrads sign_input_grads(const Scaled& up, const LinearInput& in, bool want_codes) {
  if constexpr (with_cuda)
    if (in.x.is_cuda()) return cuda_grads(up, in, at::empty_like(in.x), want_codes);
  return cpu_input_grads(up, in, [&](const Scaled& given, const at::Tensor& xs) {
    return sign_backward_(given, xs, in.scale_a, in.scale);
  });
}

}  // namespace bie::ops
