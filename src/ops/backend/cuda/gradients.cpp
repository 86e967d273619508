#include "ops/backend/gradients.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "bie/kernels/cuda/gradient.h"
#include "ops/backend/backend.h"
#include "ops/backend/cuda/call.h"
#include "ops/checks.h"

namespace bie::ops::cuda {
namespace {

constexpr const char* op_name = "backward";

class CudaGradients final : public Gradients {
  at::Tensor sign_values(const at::Tensor& t, const Scale& scale, at::ScalarType dtype) const override {
    const at::MemoryFormat layout = t.suggest_memory_format();
    const at::Tensor dense = t.contiguous(layout);
    at::Tensor signs = at::empty(dense.sizes(), dense.options().dtype(dtype), layout);
    const CudaCall call(op_name, t.device());
    call(kernels::cuda::sign_values, dense.const_data_ptr(), kernel_dtype(op_name, "a tensor of signs", t), t.numel(),
         scale.scalar(), signs.mutable_data_ptr(), kernel_dtype(op_name, "signs", signs));
    return signs;
  }

  at::Tensor quantized_values(const at::Tensor& x, const Scale& scale, const kernels::CodeBounds& bounds,
                              const Scale& by, at::ScalarType dtype) const override {
    at::Tensor values = at::empty_like(x, x.options().dtype(dtype));
    const CudaCall call(op_name, x.device());
    call(kernels::cuda::quantized_values, x.const_data_ptr<float>(), x.numel(), scale.scalar(), bounds, by.scalar(),
         values.mutable_data_ptr(), kernel_dtype(op_name, "values", values));
    return values;
  }

  at::Tensor code_values(const at::Tensor& codes, const Scale& scale, at::ScalarType dtype) const override {
    const at::MemoryFormat layout = codes.suggest_memory_format();
    const at::Tensor dense = codes.contiguous(layout);
    at::Tensor values = at::empty(codes.sizes(), codes.options().dtype(dtype), layout);
    const CudaCall call(op_name, codes.device());
    call(kernels::cuda::code_values, dense.const_data_ptr<std::int8_t>(), codes.numel(), scale.scalar(),
         values.mutable_data_ptr(), kernel_dtype(op_name, "values", values));
    return values;
  }

  void mask_clipped(const at::Tensor& grad, const at::Tensor& w, const Scale& scale,
                    const kernels::CodeBounds& bounds) const override {
    check_one_device(op_name, {grad, w});
    const CudaCall call(op_name, grad.device());
    call(kernels::cuda::mask_clipped, grad.mutable_data_ptr<float>(), w.const_data_ptr<float>(), grad.numel(),
         scale.scalar(), bounds);
  }

  void accumulate(const at::Tensor& slot, const at::Tensor& grad) const override {
    slot.copy_(slot.to(at::kShort).add_(grad).clamp_(-127, 127));
  }
};

}  // namespace

const Gradients& gradients() {
  static const CudaGradients it;
  return it;
}

}  // namespace bie::ops::cuda
