// The rules of a weight of packed codes: the scales that a float weight is rounded by, what a table of mixed rows
// means, and which entries of a file fit. The layers of C++ and of Python keep them by these functions, which are
// torch.ops.bie.* in Python.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "bie/ops.h"

namespace bie::ops {

struct RangesOptions {
  bool asym = false;                  ///< whole zeros, packed, in place of float ones
  at::ScalarType dtype = at::kFloat;  ///< of scales and float zeros
};

/// Scales and zeros by which a float weight [n, k] is rounded to the nearest code (`weight_only_pack`), one of each for
/// an output and a group of `group_size` of its elements, -1 being all: W ~ scale * q - zero.
///   2 bits and more   scale = (max - min) / (2^bits - 1)   zero = -min
///   1 bit             scale = 2d                           zero = d - m   m: the group's mean, d: the mean of |W - m|
/// With `asym` zeros are whole, clamp(rint(zero / scale), 1, 2^bits), and 1 where the scale is 0; W ~ scale * (q -
/// zero).
/// @return scales [groups, n], zeros [groups, n], or with `asym` int32 [groups, ceil(n * bits / 32)] of zero - 1.
/// @throws c10::ValueError for what is no matrix of floats, has no columns, or holds NaN or infinity.
/// Source: docs/spec/weight-only.md#round-to-nearest.
BIE_API std::tuple<at::Tensor, at::Tensor> weight_only_ranges(const at::Tensor& weight, std::int64_t bits,
                                                              std::int64_t group_size, const RangesOptions& = {});

/// Row widths in EXL2's table. q_groups: int16 [2 * groups], `bits, first row of words` of each group; a group of b
/// bits has floor(words * 32 / b) rows. Widths are 8, 6, 5, 4, 3 and 2 bits, in descending order.
/// @param words  rows of words in all.
/// @return CodedWeightTensors::bit_rows, and g_idx int32 [k].
/// @throws c10::ValueError that begins with `name` for other widths, groups that do not ascend or are too large.
BIE_API std::tuple<std::vector<std::int64_t>, at::Tensor> mixed_rows(const at::Tensor& q_groups, std::int64_t words,
                                                                     std::string_view name);

/// int32 [rows] of groups in [0, groups); else a c10::ValueError that begins with `name`. Values on the meta device are
/// not looked at.
BIE_API void check_groups_entry(const at::Tensor& entry, std::int64_t rows, std::int64_t groups, std::string_view name);
/// int16 [rows], read as unsigned: an order of the rows, or all zero.
BIE_API void check_permutation_entry(const at::Tensor& entry, std::int64_t rows, std::string_view name);

}  // namespace bie::ops
