#include "ops/gradient/integer_grad.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/gradients.h"
#include "ops/quantize/quantizers.h"

namespace bie::ops {
namespace {

/// Backward passes of one model may run side by side, as torch's own accumulation allows.
std::mutex& lock_of(const at::Tensor& weight) {
  static std::array<std::mutex, 64> locks;
  return locks[std::hash<const void*>()(weight.unsafeGetTensorImpl()) / alignof(std::max_align_t) % locks.size()];
}

}  // namespace

void check_anchor(const char* op, const at::Tensor& x, const at::Tensor& anchor) {
  TORCH_CHECK_VALUE(anchor.numel() == 0 && at::isFloatingType(anchor.scalar_type()), op,
                    ": anchor: expected an empty floating-point tensor, got ", anchor.sizes(), " of ",
                    anchor.scalar_type());
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
  return dtype == at::kChar ? int8_codes(grad) : grad.multiplied().to(dtype).contiguous();
}

at::Tensor delivered(const at::Tensor& weight, const at::Tensor& grad) {
  if (!grad.defined() || at::isFloatingType(weight.scalar_type())) return grad;
  const std::lock_guard lock(lock_of(weight));
  at::Tensor& slot = weight.mutable_grad();
  if (!slot.defined())
    slot = grad;
  else if (slot.scalar_type() == at::kChar && grad.scalar_type() == at::kChar)
    backend_of("backward", slot).gradients.accumulate(slot, grad);
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
