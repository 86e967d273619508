// The steps of DiodeMix on the CPU: a parameter at a time.
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/optim/diode_mix_step.h"

namespace bie::ops {
namespace {

const kernels::DiodeMixKernel& row_of(const char* op, const DiodeMixItem& item) {
  return chosen(op, kernels::diode_mix_table(), item.param.numel());
}

kernels::Dtype moments_of(const char* op, const DiodeMixItem& item) {
  return kernel_dtype(op, "exp_avg_l", item.exp_avg_l);
}

}  // namespace

void step_floats_cpu(const char* op, const DiodeMixItem& item, const DiodeMixStep& o) {
  const at::Tensor grad = gradient_in_order(item);
  check_status(op, row_of(op, item).floats(tensor_of(item, grad, o), kernel_dtype(op, "the parameter", item.param),
                                           moments_of(op, item), adam_numbers(o), torch_parallel()));
}

void step_codes_cpu(const char* op, const DiodeMixItem& item, const DiodeMixStep& o) {
  const kernels::DiodeMixKernel& row = row_of(op, item);
  const float scale = scale_of(op, "scale_w", item.scale_w, item.param.device()).value;
  const at::Tensor grad = gradient_in_order(item);
  float next = scale;
  if (item.renew_scale)
    check_status(op, row.renewed_scale(item.param.const_data_ptr<std::int8_t>(), item.param.numel(), scale,
                                       mean_to_step(item.bits), &next, torch_parallel()));
  check_status(op, row.codes(tensor_of(item, grad, o), scale, next, kernel_dtype(op, "grad", grad),
                             moments_of(op, item), adam_numbers(o), torch_parallel()));
  if (item.renew_scale) item.scale_w.fill_(next);
}

void step_signs_cpu(const char* op, const DiodeMixItem& item, const DiodeMixStep& o) {
  const at::Tensor grad = gradient_in_order(item);
  check_status(op, row_of(op, item).signs(tensor_of(item, grad, o), kernel_dtype(op, "grad", grad),
                                          moments_of(op, item), sign_numbers(o), torch_parallel()));
}

}  // namespace bie::ops
