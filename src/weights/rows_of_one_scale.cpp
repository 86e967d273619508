#include "bie/weights/rows_of_one_scale.h"

#include <algorithm>
#include <vector>

#include "bie/kernels/weight_only_q8.h"

namespace bie::weights {
namespace {

/// Scales of a row.
std::vector<float> open_row(const kernels::WeightRows& w, std::int64_t row, std::uint8_t* codes) {
  std::vector<float> scales(static_cast<std::size_t>(w.groups())), zeros(scales.size());
  w.open(w.file, row, codes, scales.data(), zeros.data());
  return scales;
}

/// Whether a group is zeros.
bool is_zero(const kernels::WeightRows& w, std::size_t group, float scale, const std::uint8_t* codes) {
  if (scale != 0) return false;
  const std::int64_t first = static_cast<std::int64_t>(group) * w.group, end = std::min(w.k, first + w.group);
  return std::all_of(codes + first, codes + end, [](std::uint8_t code) { return code == 1; });
}

}  // namespace

bool RowsOfOneScale::takes(const FileMatrix& matrix) {
  if (!matrix.is_coded()) return false;
  const kernels::WeightRows w = matrix.coded();
  return w.offset == kernels::Offset::none && w.bits == 2 && w.step == 1 && w.zero == 1 && w.k > 0 &&
         w.k <= kernels::most_q8_rows;
}

RowsOfOneScale::RowsOfOneScale(const FileMatrix& matrix) : rows_(matrix.coded()) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows_.k));
  for (std::int64_t row = 0; row < rows_.n && scale_ == 0; ++row)
    for (const float scale : open_row(rows_, row, codes.data()))
      if (scale_ == 0) scale_ = scale;
}

kernels::WeightRows RowsOfOneScale::rows() const {
  kernels::WeightRows w = rows_;
  w.super_block = 0;
  w.group = w.k;
  w.open = open;
  w.file = this;
  return w;
}

void RowsOfOneScale::open(const void* self, std::int64_t row, std::uint8_t* codes, float* scales, float*) {
  const auto& of = *static_cast<const RowsOfOneScale*>(self);
  const std::vector<float> own = open_row(of.rows_, row, codes);
  for (std::size_t g = 0; g < own.size(); ++g)
    if (own[g] != of.scale_ && !is_zero(of.rows_, g, own[g], codes))
      of.are_one_.store(false, std::memory_order_relaxed);
  scales[0] = of.scale_;
}

}  // namespace bie::weights
