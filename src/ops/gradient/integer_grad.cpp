#include "ops/gradient/integer_grad.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>

#include "bie/kernels/gradient.h"
#include "bie/ops.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/backend/cuda/call.h"
#include "ops/quantize/quantizers.h"

namespace bie::ops {
namespace {

/// Backward passes of one model may run side by side, as torch's own accumulation allows.
std::mutex& lock_of(const at::Tensor& weight) {
  static std::array<std::mutex, 64> locks;
  return locks[std::hash<const void*>()(weight.unsafeGetTensorImpl()) / alignof(std::max_align_t) % locks.size()];
}

/// Adds up what fits int8.
void accumulate(const at::Tensor& slot, const at::Tensor& grad) {
  if (slot.is_cuda()) {
    slot.copy_(slot.to(at::kShort).add_(grad).clamp_(-127, 127));
    return;
  }
  const char* op = "backward";
  const at::Tensor sum = slot.contiguous(), more = grad.contiguous();
  TORCH_CHECK_VALUE(sum.sizes() == more.sizes(), op, ": the weight's gradient is ", sum.sizes(), ", that of this pass ",
                    more.sizes());
  check_status(op, chosen(op, kernels::gradient_table(), sum.numel())
                       .accumulate(sum.mutable_data_ptr<std::int8_t>(), more.const_data_ptr<std::int8_t>(), sum.numel(),
                                   torch_parallel()));
  if (sum.is_same(slot))
    bump_version(slot);
  else
    slot.copy_(sum);
}

}  // namespace

void check_anchor(const char* op, const at::Tensor& x, const at::Tensor& anchor) {
  TORCH_CHECK_VALUE(anchor.numel() == 0 && at::isFloatingType(anchor.scalar_type()), op, ": anchor is ", anchor.sizes(),
                    " of ", anchor.scalar_type(), ", an empty floating-point tensor is wanted");
  TORCH_CHECK(
      !x.unsafeGetTensorImpl()->is_python_dispatch(), op,
      ": an integer weight cannot be trained inside a compiled graph, its gradient would be lost; run the layer "
      "under torch.compiler.disable");
}

at::ScalarType weight_grad_dtype(const at::Tensor& weight) {
  if (at::isFloatingType(weight.scalar_type())) return weight.scalar_type();
  return weight.grad_dtype().value_or(at::kFloat);
}

at::Tensor weight_grad(const Scaled& grad, at::ScalarType dtype) {
  return dtype == at::kChar ? int8_codes(grad) : grad.multiplied().to(dtype);
}

at::Tensor delivered(const at::Tensor& weight, const at::Tensor& grad) {
  if (!grad.defined() || at::isFloatingType(weight.scalar_type())) return grad;
  const std::lock_guard lock(lock_of(weight));
  at::Tensor& slot = weight.mutable_grad();
  if (!slot.defined())
    slot = grad;
  else if (slot.scalar_type() == at::kChar && grad.scalar_type() == at::kChar)
    accumulate(slot, grad);
  else
    slot.add_(grad.to(slot.scalar_type()));
  return {};
}

void refuse_double_backward(const char* op) {
  TORCH_CHECK(!at::GradMode::is_enabled(), op,
              ": the backward pass was asked for a graph (create_graph=True), but quantised layers have no second "
              "derivative");
}

}  // namespace bie::ops
