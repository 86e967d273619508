// The scales and zeros by which a float weight is rounded to the nearest code.
#include "bie/ops/weight_only.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace bie::ops {
std::tuple<at::Tensor, at::Tensor> weight_only_ranges(const at::Tensor& weight, std::int64_t bits,
                                                      std::int64_t group_size) {
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.size(1) > 0 && at::isFloatingType(weight.scalar_type()),
                    "weight_only_ranges: the weight is ", weight.sizes(), " of ", weight.scalar_type(),
                    ", a matrix of floats is wanted");
  TORCH_CHECK_VALUE(group_size == -1 || group_size > 0, "weight_only_ranges: group_size is ", group_size,
                    ", -1 or a positive number is wanted");
  const std::int64_t n = weight.size(0), k = weight.size(1);
  const std::int64_t size = group_size == -1 ? k : std::min(group_size, k), groups = (k + size - 1) / size;
  const at::Tensor w = weight.detach().to(at::kFloat);
  // The last group is filled with its own last column, which changes neither its least nor its greatest.
  const at::Tensor filled =
      at::cat({w, w.narrow(1, k - 1, 1).expand({n, groups * size - k})}, 1).view({n, groups, size});
  if (bits > 1) {
    const at::Tensor least = filled.amin(2);
    const at::Tensor scales = (filled.amax(2) - least) / static_cast<double>((std::int64_t{1} << bits) - 1);
    return {scales.t().contiguous(), least.neg().t().contiguous()};
  }
  const at::Tensor there = at::arange(groups * size, w.options()).lt(k).view({1, groups, size});
  const at::Tensor count = there.sum(2), mean = (filled * there).sum(2) / count;
  const at::Tensor distance = ((filled - mean.unsqueeze(2)).abs() * there).sum(2) / count;
  return {(2 * distance).t().contiguous(), (distance - mean).t().contiguous()};
}

}  // namespace bie::ops
