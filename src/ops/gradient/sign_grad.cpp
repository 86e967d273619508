#include "ops/gradient/sign_grad.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>

#include "bie/kernels/cuda/gradient.h"
#include "bie/kernels/input_grad.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/backend/cuda/call.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "backward";

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
  check_status(op_name, chosen(op_name, kernels::gradient_table(), t.numel())
                            .sign_values(dense.const_data_ptr(), kernel_dtype(op_name, "a tensor of signs", t),
                                         t.numel(), scale.value, signs.mutable_data_ptr<float>(), torch_parallel()));
  return signs;
}

Codes codes_of_signs(const at::Tensor& t) {
  if (t.scalar_type() == at::kChar) return {t, /*signs=*/true};
  return {sign_values(t, unit_scale, at::kChar)};
}

at::Tensor sign_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& sa) {
  if constexpr (with_cuda)
    if (xs.is_cuda()) return cuda_grads(up, {xs, {}, {}, scale_a, sa}, up.values, false).scale_a;
  const kernels::InputPass pass{xs.numel(), xs.const_data_ptr<float>(), up.values.mutable_data_ptr<float>(),
                                up.scale.value};
  double grad = 0;
  check_status(op_name, chosen(op_name, kernels::input_grad_table(), pass.count)
                            .sign_backward(pass, sa.value, denominator(xs), &grad, torch_parallel()));
  return at::full(scale_a.sizes(), grad, scale_a.options());
}

InputGrads sign_input_grads(const Scaled& up, const LinearInput& in, bool want_codes) {
  if constexpr (with_cuda)
    if (in.x.is_cuda()) return cuda_grads(up, in, at::empty_like(in.x), want_codes);
  return cpu_input_grads(up, in, [&](const Scaled& given, const at::Tensor& xs) {
    return sign_backward_(given, xs, in.scale_a, in.scale);
  });
}

}  // namespace bie::ops
