#include "bie/weights/coded_columns.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bie/formats/coded_rows.h"
#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "kernels/arithmetic/float_bits.h"
#include "weights/elements.h"

namespace bie::weights {
namespace {

using formats::Array;
using formats::CodedLayer;
using formats::Element;
using formats::joined;
using kernels::Dtype;
using kernels::Offset;
using Kind = CodedLayer::Kind;

constexpr std::int64_t double_quantised_below = 256;  // a wider group has its scales and zeros as they are

/// The value of a result in this type.
float rounded(float value, Element element) {
  switch (element) {
    case Element::f16: return kernels::float_from_f16(kernels::f16_from_float(value));
    case Element::bf16: return kernels::float_from_bf16(kernels::bf16_from_float(value));
    default: return value;
  }
}

/// Code `index` of a row of words.
int code_in(const std::int32_t* words, int bits, std::int64_t index) {
  return static_cast<int>(formats::code_at(reinterpret_cast<const std::uint32_t*>(words), bits, index));
}

}  // namespace

CodedColumns::CodedColumns(std::string what, const CodedLayer& layer) : what_(std::move(what)), layer_(layer) {
  if (layer_.kind == Kind::table) fail("expected a linear, got an embedding");
  weight_.k = layer_.in_features;
  weight_.n = layer_.out_features;
  weight_.words = reinterpret_cast<const std::uint32_t*>(need("qweight").data<std::int32_t>());
  put_runs();
  put_order();
  if (layer_.kind == Kind::gba && layer_.scale_group > 0 && layer_.group < double_quantised_below)
    put_doubly();
  else
    put_scales();
  put_groups();
  if (layer_.tensors.count("channel_scale") > 0) channel_scale_ = shared_floats(need("channel_scale"));
  if (layer_.tensors.count("bias") > 0) bias_ = shared_floats(need("bias"));
}

void CodedColumns::fail(const std::string& sentence) const { throw formats::Error(joined(what_, ": ", sentence)); }

const Array& CodedColumns::need(const char* key) const {
  const auto found = layer_.tensors.find(key);
  if (found == layer_.tensors.end()) fail(joined("the entry ", formats::in_quotes(key), " is missing"));
  return found->second;
}

/// Of mixed rows: a table of `bits, first row of words` for each group, whose rows fill its words.
void CodedColumns::put_runs() {
  if (layer_.kind != Kind::mixed) {
    runs_ = {{layer_.bits, weight_.k}};
  } else {
    const Array& table = need("q_groups");
    const auto* pairs = table.data<std::int16_t>();
    const std::int64_t groups = table.count() / 2, words = need("qweight").sizes[0];
    std::int64_t rows_of_all = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      const int bits = pairs[2 * g];
      const std::int64_t first = pairs[2 * g + 1], end = g + 1 < groups ? pairs[2 * g + 3] : words;
      if (bits < 2 || bits > 8 || bits == 7 || (g > 0 && bits > pairs[2 * g - 2]))
        fail(joined("q_groups: expected widths of 8, 6, 5, 4, 3 and 2 bits, falling, got ", bits));
      if (first < 0 || first > end || (g == 0 && first != 0))
        fail(joined("q_groups: expected rows that ascend from 0, got group ", g, " from ", first, " to ", end));
      const std::int64_t rows = (end - first) * 32 / bits;
      rows_of_all += rows;
      if (rows == 0 || rows_of_all > weight_.k) continue;
      runs_.push_back({bits, rows});
      group_of_.insert(group_of_.end(), static_cast<std::size_t>(rows), static_cast<std::int32_t>(g));
    }
    if (rows_of_all != weight_.k)
      fail(joined("q_groups: expected ", weight_.k, " rows, as q_perm has, got ", rows_of_all));
  }
  weight_.runs = runs_.data();
  weight_.run_count = static_cast<int>(runs_.size());
}

void CodedColumns::put_groups() {
  if (const auto g_idx = layer_.tensors.find("g_idx"); g_idx != layer_.tensors.end()) {
    const auto* groups = g_idx->second.data<std::int32_t>();
    group_of_.assign(groups, groups + weight_.k);
  } else if (group_of_.empty()) {
    for (std::int64_t i = 0; i < weight_.k; ++i) group_of_.push_back(static_cast<std::int32_t>(i / layer_.group));
  }
  weight_.group_of = group_of_.data();
}

/// int16, read as unsigned; all zero is no order of its own.
void CodedColumns::put_order() {
  const auto found = layer_.tensors.find("q_perm");
  if (found == layer_.tensors.end()) return;
  const auto* order = reinterpret_cast<const std::uint16_t*>(found->second.data<std::int16_t>());
  if (std::all_of(order, order + weight_.k, [](std::uint16_t i) { return i == 0; })) return;
  input_of_.assign(order, order + weight_.k);
  std::vector<char> seen(static_cast<std::size_t>(weight_.k));
  for (const std::int32_t i : input_of_)
    if (i >= weight_.k || std::exchange(seen[static_cast<std::size_t>(i)], 1) != 0)
      fail(joined("q_perm: expected an order of ", weight_.k, " rows, got ", i, " twice or out of range"));
  weight_.input_of = input_of_.data();
}

void CodedColumns::put_scales() {
  const Array& scales = need("scales");
  weight_.groups = scales.sizes[0];
  weight_.scales = scales.bytes->data + scales.offset * formats::size_of(scales.element);
  weight_.scale_dtype = dtype_of(scales.element);
  if (layer_.kind == Kind::gptq || (layer_.kind == Kind::gba && layer_.whole_zeros)) {
    put_packed_zeros(1);
  } else if (layer_.kind == Kind::gptq2) {
    put_packed_zeros(0);
    if (*std::min_element(whole_zeros_.begin(), whole_zeros_.end()) > 0) return;
    std::vector<float> values = floats_of(scales), zeros(values.size());
    for (std::size_t i = 0; i < zeros.size(); ++i) zeros[i] = values[i] * static_cast<float>(whole_zeros_[i]);
    put_float_offsets(std::move(values), std::move(zeros));
  } else {
    const Array& zeros = need("zeros");
    if (zeros.element != scales.element) {
      put_float_offsets(floats_of(scales), floats_of(zeros));
      return;
    }
    weight_.offset = Offset::value;
    weight_.zeros = zeros.bytes->data + zeros.offset * formats::size_of(zeros.element);
  }
}

void CodedColumns::put_packed_zeros(int added) {
  const Array& packed = need("qzeros");
  const std::int64_t words = packed.sizes[1];
  whole_zeros_.reserve(static_cast<std::size_t>(weight_.groups * weight_.n));
  for (std::int64_t g = 0; g < weight_.groups; ++g)
    for (std::int64_t j = 0; j < weight_.n; ++j)
      whole_zeros_.push_back(added + code_in(packed.data<std::int32_t>() + g * words, layer_.bits, j));
  weight_.offset = Offset::zero;
  weight_.zeros = whole_zeros_.data();
}

void CodedColumns::put_float_offsets(std::vector<float> scales, std::vector<float> zeros) {
  scales_ = std::move(scales);
  zeros_ = std::move(zeros);
  for (const std::vector<float>* values : {&scales_, &zeros_})
    if (!std::all_of(values->begin(), values->end(), [](float v) { return std::isfinite(v); }))
      fail("holds a scale or a zero that is NaN or infinite");
  weight_.scale_dtype = Dtype::f32;
  weight_.scales = scales_.data();
  weight_.offset = Offset::value;
  weight_.zeros = zeros_.data();
}

/// Scales, and zeros beside them in one byte, are codes themselves.
void CodedColumns::put_doubly() {
  const bool both = layer_.tensors.count("qstatistic") > 0;
  const char* const codes = both ? "qstatistic" : "qscales";
  weight_.groups = need(codes).sizes[0];
  std::vector<float> scales = opened(codes, both ? 4 : 0, both ? 15 : 255, "qscales_zeros", "qscales_scales");
  if (both) {
    put_float_offsets(std::move(scales), opened(codes, 0, 15, "qzeros_zeros", "qzeros_scales"));
    return;
  }
  put_float_offsets(std::move(scales), {});
  put_packed_zeros(1);
}

/// [groups, n] of (code - zero) * scale, rounded to the type of these two after each operation.
std::vector<float> CodedColumns::opened(const char* codes, int shift, int mask, const char* zeros,
                                        const char* scales) const {
  const Array &bytes = need(codes), &z = need(zeros), &s = need(scales);
  const Element product = z.element == s.element ? s.element : Element::f32;
  // Columns of a group of bytes, of which the last may be filled up.
  const std::int64_t row = bytes.count() / weight_.groups, parts = z.sizes[1];
  const bool serves_all = z.sizes[0] == 1 && parts == weight_.n;  // statistics of a column are those of every group
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(weight_.groups * weight_.n));
  for (std::int64_t g = 0; g < weight_.groups; ++g)
    for (std::int64_t j = 0; j < weight_.n; ++j) {
      const int code = bytes.data<std::uint8_t>()[g * row + j] >> shift & mask;
      const std::int64_t at = serves_all ? j : g * parts + j / layer_.scale_group;
      const float difference = rounded(static_cast<float>(code) - float_at(z, at), z.element);
      values.push_back(rounded(difference * float_at(s, at), product));
    }
  return values;
}

void CodedColumns::let_go() const {
  for (const auto& [key, array] : layer_.tensors) formats::let_go(*array.bytes);
}

}  // namespace bie::weights
