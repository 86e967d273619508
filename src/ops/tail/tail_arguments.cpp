#include "ops/tail/tail_arguments.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace bie::ops {

TailActivation activation_of(const char* op, std::string_view name, const OptTensor& slope) {
  for (std::size_t kind = 0; kind < activation_names.size(); ++kind)
    if (activation_names[kind] == name) return {static_cast<TailActivation::Kind>(kind), value_or_none(slope)};
  TORCH_CHECK_VALUE(false, op, ": activation: expected none, relu or prelu, got \"", name, "\"");
}

bool is_channels_last(const at::Tensor& x) {
  return x.dim() == 4 && !x.is_contiguous() && x.is_contiguous(at::MemoryFormat::ChannelsLast);
}

at::MemoryFormat format_of(const at::Tensor& x) {
  return is_channels_last(x) ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

at::Tensor empty_tail(const at::Tensor& x, std::int64_t pool) {
  c10::SymDimVector sizes(x.sym_sizes());
  if (pool > 1) sizes[2] = sizes[2] / pool, sizes[3] = sizes[3] / pool;
  return at::empty_symint(sizes, x.options().requires_grad(false), format_of(x));
}

void check_tail_input(const char* op, const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() == 2 || x.dim() == 4, op,
                    ": x: expected [rows, channels] or [images, channels, height, width], got ", x.sym_sizes());
}

void check_float32(const char* op, const char* name, const at::Tensor& t) {
  TORCH_CHECK_TYPE(t.scalar_type() == at::kFloat, op, ": ", name, ": expected float32, got ", t.scalar_type());
}

void check_channels(const char* op, const char* name, const at::Tensor& t, const at::Tensor& x) {
  if (!t.defined()) return;
  check_float32(op, name, t);
  TORCH_CHECK_VALUE(t.dim() == 1 && t.sym_size(0) == x.sym_size(1), op, ": ", name, ": expected [", x.sym_size(1),
                    "] for an x of ", x.sym_sizes(), ", got ", t.sym_sizes());
}

void check_norm_eps(const char* op, double eps) {
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps >= 0, op, ": eps: expected a number >= 0, got ", eps);
}

void check_activation(const char* op, const TailActivation& act) {
  const bool is_prelu = act.kind == TailActivation::prelu;
  TORCH_CHECK_VALUE(act.slope.defined() == is_prelu, op, ": a slope is that of prelu, activation is \"",
                    activation_names[act.kind], "\"");
  if (!is_prelu) return;
  check_float32(op, "slope", act.slope);
  TORCH_CHECK_VALUE(act.slope.sym_numel() == 1, op, ": slope: expected one element, got ", act.slope.sym_sizes());
}

void check_pool(const char* op, const at::Tensor& x, std::int64_t pool) {
  TORCH_CHECK_VALUE(pool >= 1, op, ": pool: expected a number >= 1, got ", pool);
  TORCH_CHECK_VALUE(pool == 1 || (x.dim() == 4 && x.sym_size(2) >= pool && x.sym_size(3) >= pool), op,
                    ": x: expected images of at least ", pool, " x ", pool, " pixels for the pool, got ",
                    x.sym_sizes());
}

}  // namespace bie::ops
