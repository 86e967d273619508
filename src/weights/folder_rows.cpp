#include "bie/weights/folder_rows.h"

#include <algorithm>
#include <utility>

#include "bie/formats/error.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/weight_values.h"
#include "kernels/arithmetic/float_bits.h"

namespace bie::weights {
namespace {

using formats::CodedRows;
using kernels::Offset;
using kernels::PackedWeight;

/// The one size of the groups, which lie one behind the other; 0 where they do not.
std::int64_t group_of(const PackedWeight& w) {
  std::int64_t size = 0;
  while (size < w.k && w.group_of[size] == 0) ++size;
  if (size == 0) return 0;
  for (std::int64_t i = 0; i < w.k; ++i)
    if (w.group_of[i] != i / size) return 0;
  return (w.k + size - 1) / size == w.groups ? size : 0;
}

/// Offsets of [groups, n] as those of rows.
void put_offsets(const PackedWeight& w, CodedRows* rows) {
  const auto* const whole = static_cast<const std::int32_t*>(w.zeros);
  const std::int64_t count = w.groups * w.n;
  const int middle = 1 << (rows->bits - 1);
  if (w.offset == Offset::none) {
    rows->zero = middle;
    return;
  }
  if (w.offset == Offset::zero && std::all_of(whole, whole + count, [&](std::int32_t z) { return z == whole[0]; })) {
    rows->zero = whole[0];
    return;
  }
  bool is_symmetric = w.offset == Offset::value;
  rows->zeros.resize(static_cast<std::size_t>(count));
  for (std::int64_t j = 0; j < w.n; ++j)
    for (std::int64_t g = 0; g < w.groups; ++g) {
      const std::int64_t at = g * w.n + j;
      const auto to = static_cast<std::size_t>(j * w.groups + g);
      const float scale = rows->scales[to];
      rows->zeros[to] = w.offset == Offset::zero ? scale * static_cast<float>(whole[at])
                                                 : kernels::load_float(w.zeros, w.scale_dtype, at);
      is_symmetric = is_symmetric && rows->zeros[to] == scale * static_cast<float>(middle);
    }
  if (is_symmetric) {
    rows->zeros.clear();
    rows->zero = middle;
  }
}

}  // namespace

std::optional<CodedRows> coded_rows(const CodedColumns& columns) {
  const PackedWeight& w = columns.weight();
  const std::int64_t group = group_of(w);
  if (w.run_count != 1 || w.input_of != nullptr || columns.channel_scale() != nullptr || group == 0)
    return std::nullopt;
  CodedRows rows;
  rows.rows = w.n;
  rows.columns = w.k;
  rows.bits = w.runs[0].bits;
  rows.group = group;
  rows.words.resize(static_cast<std::size_t>(w.n * rows.row_words()));
  const std::int64_t words_of_column = kernels::run_words(rows.bits, w.k);
  std::vector<std::uint32_t> column(static_cast<std::size_t>(words_of_column));
  for (std::int64_t j = 0; j < w.n; ++j) {  // a column's words are a row's
    for (std::int64_t i = 0; i < words_of_column; ++i) column[static_cast<std::size_t>(i)] = w.words[i * w.n + j];
    std::copy(column.begin(), column.end(), rows.words.begin() + j * rows.row_words());
    for (std::int64_t g = 0; g < w.groups; ++g)
      rows.scales.push_back(kernels::load_float(w.scales, w.scale_dtype, g * w.n + j));
  }
  put_offsets(w, &rows);
  return rows;
}

CodedRows coded_rows(const formats::TernaryLayer& layer) {
  CodedRows rows;
  rows.rows = layer.out_features;
  rows.columns = rows.group = layer.in_features;
  rows.bits = 2;
  rows.zero = 1;
  rows.scales.assign(static_cast<std::size_t>(rows.rows), layer.scale);
  rows.words.resize(static_cast<std::size_t>(rows.rows * rows.row_words()));
  const std::int64_t quarter = layer.out_features / 4;
  for (std::int64_t j = 0; j < rows.rows; ++j) {
    const auto* const bytes = layer.codes.data<std::uint8_t>() + j % quarter * rows.columns;
    for (std::int64_t i = 0; i < rows.columns; ++i)
      formats::put_code(rows.words.data() + j * rows.row_words(), 2, i, bytes[i] >> 2 * (j / quarter) & 3);
  }
  return rows;
}

std::vector<float> opened_rows(const CodedColumns& columns, const kernels::Parallel& parallel) {
  const PackedWeight& w = columns.weight();
  const kernels::WeightValuesKernel& kernel =
      kernels::choose(kernels::weight_values_table(), w.k * w.n, kernels::host().isas);
  std::vector<float> values(static_cast<std::size_t>(w.k * w.n)), rows(values.size());
  if (const kernels::Status status = kernel.open(w, values.data(), kernels::Dtype::f32, parallel);
      status != kernels::Status::ok)
    throw formats::Error(formats::joined(columns.what(), ": ", kernels::describe(status)));
  const float* const factor = columns.channel_scale().get();
  for (std::int64_t i = 0; i < w.k; ++i)
    for (std::int64_t j = 0; j < w.n; ++j) {
      const float value = values[static_cast<std::size_t>(i * w.n + j)];
      rows[static_cast<std::size_t>(j * w.k + i)] = factor == nullptr ? value : value * factor[i];
    }
  return rows;
}

}  // namespace bie::weights
