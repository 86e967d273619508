#include "ops/sign_grad.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "bie/kernels/cuda/gradient.h"
#include "ops/cuda_call.h"
#include "ops/elementwise.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "backward";

float sign(float v) { return static_cast<float>(v > 0) - static_cast<float>(v < 0); }

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
  AT_DISPATCH_FLOATING_TYPES_AND3(at::kHalf, at::kBFloat16, at::kChar, dense.scalar_type(), "sign_values", [&] {
    const scalar_t* from = dense.const_data_ptr<scalar_t>();
    for_ranges(dense.numel(), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = sign(static_cast<float>(from[i])) * by;
    });
  });
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
    for (std::int64_t i = begin; i < end; ++i) {
      const float grad = g[i] * scale_w * inside_range(v[i] / divisor, -1, 1);
      terms[i - begin] = grad * sign(v[i]);
      g[i] = grad;
    }
  });
  return at::full(scale_a.sizes(), sum / denominator, scale_a.options());
}

}  // namespace bie::ops
