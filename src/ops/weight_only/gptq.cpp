// GPTQ for Python, on the CPU: add_second_moment, gptq.
#include "bie/weights/gptq.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "bie/ops/threads.h"
#include "bie/ops/weight_rules.h"
#include "bie/weights/second_moment.h"
#include "ops/files/file_tensors.h"
#include "ops/weight_only/words.h"

namespace bie::ops {
namespace {

void expect_square(const char* op, const char* name, const at::Tensor& matrix, std::int64_t size) {
  TORCH_CHECK_VALUE(matrix.dim() == 2 && matrix.size(0) == size && matrix.size(1) == size &&
                        matrix.scalar_type() == at::kDouble && matrix.is_contiguous(),
                    op, ": ", name, ": expected a contiguous float64 matrix [", size, ", ", size, "], got ",
                    matrix.sizes(), " of ", dtype_name(matrix.scalar_type()));
}

void expect_floats(const char* op, const char* name, const at::Tensor& matrix) {
  TORCH_CHECK_VALUE(matrix.dim() == 2 && matrix.size(1) > 0 && at::isFloatingType(matrix.scalar_type()), op, ": ", name,
                    ": expected a matrix of floats, got ", matrix.sizes(), " of ", dtype_name(matrix.scalar_type()));
}

void add_second_moment(const at::Tensor& sum, const at::Tensor& x) {
  const char* const op = "add_second_moment";
  expect_floats(op, "x", x);
  expect_square(op, "sum", sum, x.size(1));
  const at::Tensor rows = x.to(at::kDouble).contiguous();
  weights::add_second_moment(rows.const_data_ptr<double>(), rows.size(0), rows.size(1), sum.mutable_data_ptr<double>(),
                             torch_parallel());
}

formats::GroupNumbers numbers_of(const char* op, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, op,
                    ": dtype: expected float32, float16 or bfloat16, got ", dtype_name(dtype));
  return dtype == at::kFloat  ? formats::GroupNumbers::f32
         : dtype == at::kHalf ? formats::GroupNumbers::f16
                              : formats::GroupNumbers::bf16;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gptq(const at::Tensor& weight, const at::Tensor& hessian,
                                                    std::int64_t bits, std::int64_t group_size, bool asym,
                                                    at::ScalarType dtype, double shrinkage, double damping) {
  const char* const op = "gptq";
  expect_floats(op, "the weight", weight);
  const std::int64_t n = weight.size(0), k = weight.size(1), group = group_size == -1 ? k : std::min(group_size, k);
  expect_square(op, "the Hessian", hessian, k);
  TORCH_CHECK_VALUE(bits >= 1 && bits <= 8, op, ": bits: expected 1 ... 8, got ", bits);
  TORCH_CHECK_VALUE(group > 0, op, ": group_size: expected -1 or a positive number, got ", group_size);
  TORCH_CHECK_VALUE(shrinkage >= 0, op, ": shrinkage: expected 0 or a positive number, got ", shrinkage);
  TORCH_CHECK_VALUE(damping > 0, op, ": damping: expected a positive number, got ", damping);
  const formats::GroupGrids grids{static_cast<int>(bits), asym, numbers_of(op, dtype)};
  const at::Tensor w = weight.to(at::kFloat).contiguous();
  TORCH_CHECK_VALUE(all_finite(w), op, ": the weight holds NaN or infinity");
  TORCH_CHECK_VALUE(all_finite(hessian), op, ": the Hessian holds NaN or infinity");
  const auto* const h = hessian.const_data_ptr<double>();
  weights::GptqGroups made = with_file_errors([&] {
    const weights::ErrorFeedback feedback(op, std::vector<double>(h, h + k * k), k, torch_parallel(),
                                          {shrinkage, damping});
    return weights::gptq_groups(op, grids, group, w.const_data_ptr<float>(), n, feedback, torch_parallel());
  });
  const std::int64_t groups = (k + group - 1) / group;
  const auto turned = [](const at::Tensor& rows) { return rows.t().contiguous(); };
  const at::Tensor scales = turned(tensor_of(std::move(made.scales), at::kFloat, {n, groups})),
                   offsets = turned(tensor_of(std::move(made.zeros), at::kFloat, {n, groups}));
  const at::Tensor zeros =
      asym ? packed_words(turned(tensor_of(std::move(made.whole), at::kInt, {n, groups})).sub(1), bits, /*dim=*/1)
           : offsets.to(dtype);
  return {turned(tensor_of(std::move(made.codes), at::kByte, {n, k})).to(at::kInt), scales.to(dtype), zeros};
}

}  // namespace
}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CPU, m) {
  m.impl("add_second_moment", bie::ops::add_second_moment);
  m.impl("gptq", bie::ops::gptq);
}
