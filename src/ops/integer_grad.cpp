#include "ops/integer_grad.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "bie/ops.h"
#include "ops/bridge.h"

namespace bie::ops {
namespace {

/// Writes (or accumulates) weight.grad: int8 by the rule of int8_grad, saturating, unless weight.grad_dtype is a float
/// type or None, which takes the unquantised sum.
void deliver(const at::Tensor& weight, const at::Tensor& grad) {
  const std::optional<at::ScalarType> wanted = weight.grad_dtype();
  at::Tensor& slot = weight.mutable_grad();
  if (wanted.has_value() && *wanted == at::kChar) {
    const at::Tensor q = int8_grad(grad);
    if (!slot.defined())
      slot = q;
    else
      slot.copy_(slot.to(at::kShort).add_(q).clamp_(-127, 127));
    return;
  }
  const at::ScalarType type = wanted.value_or(at::kFloat);
  if (!slot.defined())
    slot = grad.to(type, /*non_blocking=*/false, /*copy=*/true);
  else
    slot.add_(grad.to(slot.scalar_type()));
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

at::Tensor weight_grad(const at::Tensor& weight, const at::Tensor& grad) {
  if (!grad.defined() || at::isFloatingType(weight.scalar_type())) return grad;
  deliver(weight, grad);
  return {};
}

void refuse_double_backward(const char* op) {
  TORCH_CHECK(!at::GradMode::is_enabled(), op,
              ": the backward pass was asked for a graph (create_graph=True), but quantised layers have no second "
              "derivative");
}

}  // namespace bie::ops
