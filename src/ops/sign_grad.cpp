#include "ops/sign_grad.h"

#include <ATen/ops/empty.h>
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
BIE_VECTOR_CLONES void estimator_pass(const float* v, float* g, float* terms, std::int64_t count, float scale_w,
                                      float divisor) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float grad = g[i] * scale_w * inside_range(v[i] / divisor, -1, 1);
    terms[i] = grad * sign(v[i]);
    g[i] = grad;
  }
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

at::Tensor sign_backward_(at::Tensor& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& sa,
                          const Scale& sw) {
  const float* v = xs.const_data_ptr<float>();
  float* g = up.mutable_data_ptr<float>();
  const double denominator = std::sqrt(static_cast<double>(std::max<std::int64_t>(1, xs.numel())));
  if constexpr (with_cuda) {
    if (xs.is_cuda()) {
      check_one_device(op_name, {xs, up});
      const CudaCall call(op_name, xs.device());
      const at::Tensor workspace = call.workspace();
      const at::Tensor grad_scale = at::empty(scale_a.sizes(), xs.options().dtype(at::kFloat));
      call(kernels::cuda::sign_backward, g, v, xs.numel(), sa.scalar(), sw.scalar(), denominator,
           grad_scale.mutable_data_ptr<float>(), workspace.mutable_data_ptr());
      // A scale on the CPU that wants no gradient is not worth waiting for.
      if (scale_a.is_cpu() && !scale_a.requires_grad()) return {};
      return grad_scale.to(scale_a.options());
    }
  }
  const float scale_w = sw.value, divisor = sa.value == 0 ? FLT_MIN : sa.value;
  const double sum = sum_of_terms(xs.numel(), [=](std::int64_t begin, std::int64_t end, float* terms) {
    estimator_pass(v + begin, g + begin, terms, end - begin, scale_w, divisor);
  });
  return at::full(scale_a.sizes(), sum / denominator, scale_a.options());
}

}  // namespace bie::ops
