#include "ops/tail/tail_arguments.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace bie::ops {

TailActivation activation_of(const char* op, std::string_view name, const OptTensor& slope) {
  for (std::size_t kind = 0; kind < activation_names.size(); ++kind)
    if (activation_names[kind] == name) return {static_cast<TailActivation::Kind>(kind), value_or_none(slope)};
  TORCH_CHECK_VALUE(false, op, ": activation is \"", name, "\", none, relu or prelu is wanted");
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
  TORCH_CHECK_VALUE(x.dim() == 2 || x.dim() == 4, op, ": x is ", x.sym_sizes(),
                    ", [rows, channels] or [images, channels, height, width] is wanted");
}

void check_float32(const char* op, const char* name, const at::Tensor& t) {
  TORCH_CHECK_TYPE(t.scalar_type() == at::kFloat, op, ": ", name, " is ", t.scalar_type(), ", float32 is wanted");
}

void check_channels(const char* op, const char* name, const at::Tensor& t, const at::Tensor& x) {
  if (!t.defined()) return;
  check_float32(op, name, t);
  TORCH_CHECK_VALUE(t.dim() == 1 && t.sym_size(0) == x.sym_size(1), op, ": ", name, " is ", t.sym_sizes(), ", x is ",
                    x.sym_sizes(), ", [", x.sym_size(1), "] is wanted");
}

void check_norm_eps(const char* op, double eps) {
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps >= 0, op, ": eps is ", eps, ", a number >= 0 is wanted");
}

void check_activation(const char* op, const TailActivation& act) {
  const bool is_prelu = act.kind == TailActivation::prelu;
  TORCH_CHECK_VALUE(act.slope.defined() == is_prelu, op, ": a slope is that of prelu, activation is \"",
                    activation_names[act.kind], "\"");
  if (!is_prelu) return;
  check_float32(op, "slope", act.slope);
  TORCH_CHECK_VALUE(act.slope.sym_numel() == 1, op, ": slope is ", act.slope.sym_sizes(), ", one element is wanted");
}

void check_pool(const char* op, const at::Tensor& x, std::int64_t pool) {
  TORCH_CHECK_VALUE(pool >= 1, op, ": pool is ", pool, ", a number >= 1 is wanted");
  TORCH_CHECK_VALUE(pool == 1 || (x.dim() == 4 && x.sym_size(2) >= pool && x.sym_size(3) >= pool), op, ": pool is ",
                    pool, ", x is ", x.sym_sizes(), ", images of that size at least are wanted");
}

}  // namespace bie::ops
