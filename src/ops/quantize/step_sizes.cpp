// step_sizes: the steps of codes that post-training quantisation chooses from values.
#include "bie/ops/step_sizes.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <string>

#include "bie/kernels/step_search.h"
#include "ops/checks.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "step_sizes";

void check(const at::Tensor& values, std::int64_t bits, c10::string_view rule, double percentile) {
  check_float(op_name, "values", values);
  TORCH_CHECK_VALUE(values.dim() >= 1, op_name, ": values: expected at least one axis, got a 0-dimensional tensor");
  TORCH_CHECK_VALUE(bits == 8 || bits == 4, op_name, ": bits: expected 8 or 4, got ", bits);
  TORCH_CHECK_VALUE(rule == "mse" || rule == "percentile", op_name, ": rule: expected 'mse' or 'percentile', got '",
                    rule, "'");
  TORCH_CHECK_VALUE(percentile > 0 && percentile <= 100, op_name,
                    ": percentile: expected a number above 0 and up to 100, got ", percentile);
}

}  // namespace

at::Tensor step_sizes(const at::Tensor& all, std::int64_t bits, c10::string_view rule, double percentile) {
  check(all, bits, rule, percentile);
  at::Tensor steps = at::empty({all.size(0)}, at::kFloat);
  if (all.size(0) == 0) return steps.to(all.device());
  const at::Tensor values = all.detach().to(at::kCPU, at::kFloat).reshape({all.size(0), -1}).contiguous();
  const kernels::StepValues rows{values.const_data_ptr<float>(), values.size(0), values.size(1),
                                 static_cast<int>(bits)};
  if (rule == "percentile")
    kernels::percentile_steps(rows, percentile, steps.mutable_data_ptr<float>());
  else
    kernels::least_square_steps(rows, steps.mutable_data_ptr<float>());
  return steps.to(all.device());
}

namespace {

at::Tensor step_sizes_meta(const at::Tensor& values, std::int64_t bits, c10::string_view rule, double percentile) {
  check(values, bits, rule, percentile);
  return at::empty_symint({values.sym_size(0)}, values.options().dtype(at::kFloat));
}

}  // namespace
}  // namespace bie::ops

BIE_OPERATORS(m) { m.impl("step_sizes", bie::ops::step_sizes); }

TORCH_LIBRARY_IMPL(bie, Meta, m) { m.impl("step_sizes", bie::ops::step_sizes_meta); }
