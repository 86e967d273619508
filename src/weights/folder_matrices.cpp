#include "bie/weights/folder_matrices.h"

#include <utility>

#include "bie/formats/coded_rows.h"
#include "bie/formats/error.h"
#include "weights/elements.h"

namespace bie::weights {
namespace {

using formats::Array;

class TableRows : public CodedRowReader {
 public:
  TableRows(const formats::CodedLayer& layer, std::int64_t groups)
      : layer_(layer), groups_(groups), words_(at("qweight")), scales_(at("scales")), zeros_(at("zeros")) {}

  void open(std::int64_t row, std::uint8_t* codes, float* scales, float* zeros) const override {
    const auto* words = reinterpret_cast<const std::uint32_t*>(words_.data<std::int32_t>()) + row * words_.sizes.back();
    for (std::int64_t i = 0; i < layer_.in_features; ++i)
      codes[i] = static_cast<std::uint8_t>(formats::code_at(words, layer_.bits, i));
    for (std::int64_t g = 0; g < groups_; ++g) {
      scales[g] = float_at(scales_, row * groups_ + g);
      zeros[g] = float_at(zeros_, row * groups_ + g);
    }
  }
  std::shared_ptr<const formats::Bytes> bytes() const override { return words_.bytes; }

 private:
  const Array& at(const char* key) const { return layer_.tensors.at(key); }

  formats::CodedLayer layer_;
  std::int64_t groups_;
  Array words_, scales_, zeros_;
};

class TernaryRows : public CodedRowReader {
 public:
  explicit TernaryRows(const formats::TernaryLayer& layer) : layer_(layer) {}

  void open(std::int64_t row, std::uint8_t* codes, float* scales, float* /*zeros*/) const override {
    const std::int64_t rows = layer_.out_features / 4, k = layer_.in_features;
    const auto* const bytes = layer_.codes.data<std::uint8_t>() + row % rows * k;
    const auto shift = static_cast<int>(2 * (row / rows));
    for (std::int64_t i = 0; i < k; ++i) codes[i] = static_cast<std::uint8_t>(bytes[i] >> shift & 3);
    scales[0] = layer_.scale;
  }
  std::shared_ptr<const formats::Bytes> bytes() const override { return layer_.codes.bytes; }

 private:
  formats::TernaryLayer layer_;
};

}  // namespace

FileMatrix ternary_matrix(std::string what, const formats::TernaryLayer& layer) {
  kernels::WeightRows form{};
  form.k = form.group = layer.in_features;
  form.n = layer.out_features;
  form.bits = 2;
  form.scale_dtype = kernels::Dtype::f32;
  form.offset = kernels::Offset::none;
  form.step = form.zero = 1;
  return {std::move(what), form, std::make_shared<TernaryRows>(layer)};
}

FileMatrix coded_table(std::string what, const formats::CodedLayer& layer) {
  if (layer.kind != formats::CodedLayer::Kind::table)
    throw formats::Error(formats::joined(what, ": expected an embedding of codes, got a linear"));
  for (const char* key : {"qweight", "scales", "zeros"})
    if (layer.tensors.count(key) == 0)
      throw formats::Error(formats::joined(what, ": the entry ", formats::in_quotes(key), " is missing"));
  kernels::WeightRows form{};
  form.k = layer.in_features;
  form.n = layer.out_features;
  form.group = layer.group;
  form.bits = layer.bits;
  form.scale_dtype = kernels::Dtype::f32;
  form.offset = kernels::Offset::value;
  return {std::move(what), form, std::make_shared<TableRows>(layer, form.groups())};
}

}  // namespace bie::weights
