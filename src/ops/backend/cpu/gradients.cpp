#include "ops/backend/gradients.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sign.h>

#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/checks.h"
#include "ops/dispatcher.h"

namespace bie::ops::cpu {
namespace {

constexpr const char* op_name = "backward";

const kernels::GradientKernel& row_of(const at::Tensor& t) {
  return chosen(op_name, kernels::gradient_table(), t.numel());
}

class CpuGradients final : public Gradients {
  at::Tensor sign_values(const at::Tensor& t, const Scale& scale, at::ScalarType dtype) const override {
    const at::MemoryFormat layout = t.suggest_memory_format();
    const at::Tensor dense = t.contiguous(layout);
    if (dtype == at::kChar) {
      if (t.scalar_type() != at::kChar) return t.sign().to(at::kChar);
      at::Tensor codes = at::empty(dense.sizes(), dense.options(), layout);
      check_status(op_name, row_of(t).sign_codes(dense.const_data_ptr<std::int8_t>(), t.numel(),
                                                 codes.mutable_data_ptr<std::int8_t>(), torch_parallel()));
      return codes;
    }
    at::Tensor signs = at::empty(dense.sizes(), dense.options().dtype(dtype), layout);
    check_status(op_name,
                 row_of(t).sign_values(dense.const_data_ptr(), kernel_dtype(op_name, "a tensor of signs", t), t.numel(),
                                       scale.value, signs.mutable_data_ptr<float>(), torch_parallel()));
    return signs;
  }

  at::Tensor quantized_values(const at::Tensor& x, const Scale& scale, const kernels::CodeBounds& bounds,
                              const Scale& by, at::ScalarType dtype) const override {
    at::Tensor values = at::empty_like(x, x.options().dtype(dtype));
    check_status(op_name, row_of(x).quantized_values(x.const_data_ptr<float>(), x.numel(), scale.value, bounds,
                                                     by.value, values.mutable_data_ptr<float>(), torch_parallel()));
    return values;
  }

  at::Tensor code_values(const at::Tensor& codes, const Scale& scale, at::ScalarType dtype) const override {
    const at::MemoryFormat layout = codes.suggest_memory_format();
    const at::Tensor dense = codes.contiguous(layout);
    at::Tensor values = at::empty(codes.sizes(), codes.options().dtype(dtype), layout);
    check_status(op_name, row_of(codes).code_values(dense.const_data_ptr<std::int8_t>(), codes.numel(), scale.value,
                                                    values.mutable_data_ptr<float>(), torch_parallel()));
    return values;
  }

  void mask_clipped(const at::Tensor& grad, const at::Tensor& w, const Scale& scale,
                    const kernels::CodeBounds& bounds) const override {
    check_status(op_name, row_of(grad).mask_clipped(grad.mutable_data_ptr<float>(), w.const_data_ptr<float>(),
                                                    grad.numel(), scale.value, bounds, torch_parallel()));
  }

  void accumulate(const at::Tensor& slot, const at::Tensor& grad) const override {
    const at::Tensor sum = slot.contiguous(), more = grad.contiguous();
    TORCH_CHECK_VALUE(sum.sizes() == more.sizes(), op_name, ": the weight's gradient is ", sum.sizes(),
                      ", that of this pass ", more.sizes());
    check_status(op_name, row_of(sum).accumulate(sum.mutable_data_ptr<std::int8_t>(),
                                                 more.const_data_ptr<std::int8_t>(), sum.numel(), torch_parallel()));
    if (sum.is_same(slot))
      bump_version(slot);
    else
      slot.copy_(sum);
  }
};

}  // namespace

const Gradients& gradients() {
  static const CpuGradients it;
  return it;
}

}  // namespace bie::ops::cpu
