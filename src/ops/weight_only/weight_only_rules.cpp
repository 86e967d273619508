#include "bie/ops/weight_only_rules.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/max.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>

#include "bie/ops/weight_rules.h"
#include "ops/weight_only/words.h"

namespace bie::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Rows = std::tuple<std::vector<std::int64_t>, at::Tensor>;

/// Scales and float zeros [n, groups] in float32.
Pair float_ranges(const at::Tensor& weight, std::int64_t bits, std::int64_t group_size) {
  const std::int64_t n = weight.size(0), k = weight.size(1);
  const std::int64_t size = group_size == -1 ? k : std::min(group_size, k), groups = (k + size - 1) / size;
  // The last group is filled with its own last column, which changes neither its least nor its greatest.
  const at::Tensor filled =
      at::cat({weight, weight.narrow(1, k - 1, 1).expand({n, groups * size - k})}, 1).view({n, groups, size});
  if (bits > 1) {
    const at::Tensor least = filled.amin(2);
    const at::Tensor scales = (filled.amax(2) - least) / static_cast<double>((std::int64_t{1} << bits) - 1);
    return {scales, least.neg()};
  }
  const at::Tensor there = at::arange(groups * size, weight.options()).lt(k).view({1, groups, size});
  const at::Tensor count = there.sum(2), mean = (filled * there).sum(2) / count;
  const at::Tensor distance = ((filled - mean.unsqueeze(2)).abs() * there).sum(2) / count;
  return {2 * distance, distance - mean};
}

/// Refuses scales or offsets of float16 whose rounding moves a weight by more than a hundredth of the largest one: a
/// weight of 1e-7 has scales that float16 rounds to 0.
void check_rounding(const char* op, const at::Tensor& w, std::int64_t bits, const at::Tensor& wide,
                    const at::Tensor& rounded, double codes) {
  if (rounded.scalar_type() != at::kHalf || w.numel() == 0 || w.is_meta()) return;
  const double moved = codes * (rounded.to(at::kFloat) - wide).abs().max().item<double>();
  const double largest = w.abs().max().item<double>();
  TORCH_CHECK_VALUE(moved <= 0.01 * largest, op, ": the largest weight is ", largest, ", and rounding its ", bits,
                    "-bit scales to float16 moves weights by up to ", moved,
                    "; float32 scales hold them (dtype=torch.float32)");
}

Pair ranges(const at::Tensor& weight, std::int64_t bits, std::int64_t group_size, bool asym,
            std::optional<at::ScalarType> dtype) {
  const char* op = "weight_only_ranges";
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.size(1) > 0 && at::isFloatingType(weight.scalar_type()), op,
                    ": the weight: expected a matrix of floats, got ", weight.sizes(), " of ",
                    dtype_name(weight.scalar_type()));
  TORCH_CHECK_VALUE(bits >= 1 && bits <= 8, op, ": bits: expected 1 ... 8, got ", bits);
  TORCH_CHECK_VALUE(group_size == -1 || group_size > 0, op, ": group_size: expected -1 or a positive number, got ",
                    group_size);
  const at::Tensor w = weight.detach().to(at::kFloat);
  TORCH_CHECK_VALUE(all_finite(w), op, ": the weight holds NaN or infinity");
  const auto [steps, offsets] = float_ranges(w, bits, group_size);
  const at::Tensor scales = steps.t().to(dtype.value_or(at::kFloat)).contiguous(), zeros = offsets.t();
  TORCH_CHECK_VALUE(all_finite(scales), op, ": a range of the weight is too large for ",
                    dtype_name(scales.scalar_type()));
  check_rounding(op, w, bits, steps.t(), scales, static_cast<double>((std::int64_t{1} << bits) - 1));
  if (!asym) {
    const at::Tensor rounded = zeros.to(scales.scalar_type()).contiguous();
    check_rounding(op, w, bits, zeros, rounded, 1);
    return {scales, rounded};
  }
  const at::Tensor whole = at::where(scales.eq(0), 1.0, zeros / scales.to(at::kFloat)).round();
  return {scales, packed_words(whole.clamp(1, std::int64_t{1} << bits).sub(1).to(at::kInt), bits, /*dim=*/1)};
}

Rows rows_of_table(const at::Tensor& q_groups, std::int64_t words, std::string_view name) {
  TORCH_CHECK_VALUE(q_groups.dim() == 1 && q_groups.numel() % 2 == 0 && q_groups.scalar_type() == at::kShort, name,
                    ": expected pairs of int16, got ", q_groups.sizes(), " of ", dtype_name(q_groups.scalar_type()));
  const at::Tensor table = q_groups.cpu().contiguous();
  const auto* pairs = table.const_data_ptr<std::int16_t>();
  const std::int64_t groups = table.numel() / 2;
  std::vector<std::int64_t> bit_rows;
  std::vector<std::int32_t> group_of;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t bits = pairs[2 * g], first = pairs[2 * g + 1];
    const std::int64_t end = g + 1 < groups ? pairs[2 * g + 3] : words;
    TORCH_CHECK_VALUE(bits >= 2 && bits <= 8 && bits != 7 && (g == 0 || bits <= pairs[2 * g - 2]), name,
                      ": expected widths of 8, 6, 5, 4, 3 and 2 bits, falling, got ", bits);
    TORCH_CHECK_VALUE(first >= 0 && first <= end, name, ": group ", g, " begins at row ", first, " of the words, at ",
                      end, " the next; they ascend");
    const std::int64_t rows = (end - first) * 32 / bits;
    TORCH_CHECK_VALUE(rows <= 32767, name, ": a group: expected at most 32767 rows, got ", rows);
    if (rows == 0) continue;
    bit_rows.insert(bit_rows.end(), {bits, rows});
    group_of.insert(group_of.end(), static_cast<std::size_t>(rows), static_cast<std::int32_t>(g));
  }
  return {bit_rows, at::tensor(group_of, at::kInt).to(q_groups.device())};
}

void groups_entry(const at::Tensor& entry, std::int64_t rows, std::int64_t groups, std::string_view name) {
  check_entry(entry, rows, at::kInt, name);
  if (entry.is_meta() || rows == 0) return;
  const auto [least, most] = at::aminmax(entry);
  TORCH_CHECK_VALUE(least.item<int>() >= 0 && most.item<int>() < groups, name, " holds groups outside [0, ", groups - 1,
                    "]");
}

void permutation_entry(const at::Tensor& entry, std::int64_t rows, std::string_view name) {
  check_entry(entry, rows, at::kShort, name);
  if (entry.is_meta()) return;
  const at::Tensor order = entry.to(at::kLong).bitwise_and(0xffff);
  TORCH_CHECK_VALUE(!order.any().item<bool>() || std::get<0>(order.sort()).equal(at::arange(rows, order.options())),
                    name, " is not a permutation of the rows");
}

}  // namespace

Pair weight_only_ranges(const at::Tensor& weight, std::int64_t bits, std::int64_t group_size, const RangesOptions& o) {
  return ranges(weight, bits, group_size, o.asym, o.dtype);
}

Rows mixed_rows(const at::Tensor& q_groups, std::int64_t words, std::string_view name) {
  return rows_of_table(q_groups, words, name);
}

void check_groups_entry(const at::Tensor& entry, std::int64_t rows, std::int64_t groups, std::string_view name) {
  groups_entry(entry, rows, groups, name);
}

void check_permutation_entry(const at::Tensor& entry, std::int64_t rows, std::string_view name) {
  permutation_entry(entry, rows, name);
}

}  // namespace bie::ops

// Rules over other operators: graphs see those.
TORCH_LIBRARY_IMPL(bie, CompositeImplicitAutograd, m) {
  m.impl("weight_only_ranges", bie::ops::ranges);
  m.impl("mixed_rows", bie::ops::rows_of_table);
  m.impl("check_groups_entry", bie::ops::groups_entry);
  m.impl("check_permutation_entry", bie::ops::permutation_entry);
}
