// A parameter at a time.
#include "ops/backend/diode_mix.h"

#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/checks.h"
#include "ops/optim/diode_mix_step.h"

namespace bie::ops::cpu {
namespace {

const kernels::DiodeMixKernel& row_of(const char* op, const at::Tensor& param) {
  return chosen(op, kernels::diode_mix_table(), param.numel());
}

kernels::Dtype moments_of(const char* op, const DiodeMixItem& item) {
  return kernel_dtype(op, "exp_avg_l", item.exp_avg_l);
}

class CpuDiodeMix final : public DiodeMixSteps {
  void floats(const char* op, const Items& items, const DiodeMixStep& o) const override {
    for (const DiodeMixItem& item : items) {
      const at::Tensor grad = gradient_in_order(item);
      check_status(op, row_of(op, item.param)
                           .floats(tensor_of(item, grad, o), kernel_dtype(op, "the parameter", item.param),
                                   moments_of(op, item), adam_numbers(o), torch_parallel()));
    }
  }

  void codes(const char* op, const Items& items, const DiodeMixStep& o) const override {
    for (const DiodeMixItem& item : items) {
      const kernels::DiodeMixKernel& kernel = row_of(op, item.param);
      const float scale = scale_of(op, "scale_w", item.scale_w, item.param.device()).value;
      const at::Tensor grad = gradient_in_order(item);
      float next = scale;
      if (item.renew_scale)
        check_status(op, kernel.renewed_scale(item.param.const_data_ptr<std::int8_t>(), item.param.numel(), scale,
                                              mean_to_step(item.bits), &next, torch_parallel()));
      check_status(op, kernel.codes(tensor_of(item, grad, o), scale, next, kernel_dtype(op, "grad", grad),
                                    moments_of(op, item), adam_numbers(o), torch_parallel()));
      if (item.renew_scale) item.scale_w.fill_(next);
    }
  }

  void signs(const char* op, const Items& items, const DiodeMixStep& o) const override {
    for (const DiodeMixItem& item : items) {
      const at::Tensor grad = gradient_in_order(item);
      check_status(op, row_of(op, item.param)
                           .signs(tensor_of(item, grad, o), kernel_dtype(op, "grad", grad), moments_of(op, item),
                                  sign_numbers(o), torch_parallel()));
    }
  }

  void first_moment(const char* op, const at::Tensor& signs, std::uint64_t random,
                    const at::Tensor& moment) const override {
    check_status(op, row_of(op, signs).first_moment(signs.const_data_ptr<std::int8_t>(), signs.numel(), random,
                                                    moment.mutable_data_ptr(), kernel_dtype(op, "a moment", moment),
                                                    torch_parallel()));
  }
};

}  // namespace

const DiodeMixSteps& diode_mix() {
  static const CpuDiodeMix it;
  return it;
}

}  // namespace bie::ops::cpu
