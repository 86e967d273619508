#include "llm/model_tensors.h"

#include <algorithm>
#include <memory>

#include "bie/formats/error.h"
#include "bie/weights/folder_matrices.h"
#include "bie/weights/folder_rows.h"
#include "llm/architectures.h"
#include "weights/elements.h"

namespace bie::llm {

ModelTensors::ModelTensors(const ModelFile& file, Arithmetic arithmetic, bool one_scale,
                           const kernels::Parallel& parallel)
    : file_(file), arithmetic_(arithmetic), one_scale_(one_scale), parallel_(parallel) {
  for (const formats::GgufTensor& tensor : file.gguf.tensors) by_name_.emplace(tensor.name, &tensor);
}

Vector ModelTensors::vector(const std::string& name, std::int64_t size) {
  const formats::GgufTensor& tensor = take(name, {size});
  formats::GgufTensor row = tensor;
  row.sizes = {1, size};
  const weights::FileMatrix matrix(what(name), row);
  if (matrix.is_coded()) file_.fail(formats::joined(said(name), ": expected floats, got ", tensor.type->name));
  const std::shared_ptr<float[]> values(new float[static_cast<std::size_t>(size)]);
  matrix.read_row(0, values.get());
  return values;
}

weights::FileMatrix ModelTensors::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
  if (const formats::CodedLayer* const codes = take_codes(name, rows, columns))
    return weights::coded_table(what(name), *codes);
  if (const auto found = file_.ternary.find(name); found != file_.ternary.end()) {
    const formats::TernaryLayer& layer = found->second;
    expect_sizes(name + ".weight", {layer.out_features, layer.in_features}, {rows, columns});
    taken_.insert(name);
    parameters_ += rows * columns;
    return weights::ternary_matrix(what(name), layer);
  }
  return {what(name + ".weight"), take(name + ".weight", {rows, columns})};
}

OpenMatrix ModelTensors::open(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const auto found = file_.codes.find(name);
  if (found != file_.codes.end() && found->second.kind != formats::CodedLayer::Kind::table) {
    const weights::CodedColumns codes(what(name), *take_codes(name, rows, columns));
    const auto values = std::make_shared<const std::vector<float>>(weights::opened_rows(codes, parallel_));
    return {
        [values, columns](std::int64_t row, float* to) { std::copy_n(values->data() + row * columns, columns, to); },
        [codes] { codes.let_go(); }};
  }
  const weights::FileMatrix matrix = this->matrix(name, rows, columns);
  return {[matrix](std::int64_t row, float* to) { matrix.read_row(row, to); }, [matrix] { matrix.let_go(); }};
}

Vector ModelTensors::bias(const std::string& name, std::int64_t outputs) {
  return has(name + ".bias") ? vector(name + ".bias", outputs) : nullptr;
}

Vector ModelTensors::bias_of(const std::string& name, std::int64_t outputs) {
  const auto codes = file_.codes.find(name);
  if (codes == file_.codes.end() || codes->second.tensors.count("bias") == 0) return bias(name, outputs);
  return weights::shared_floats(codes->second.tensors.at("bias"));
}

weights::Linear ModelTensors::linear(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
  return linear(name, outputs, inputs, bias(name, outputs));
}

weights::Linear ModelTensors::linear(const std::string& name, std::int64_t outputs, std::int64_t inputs,
                                     const Vector& bias) {
  weights::Linear result;
  if (const formats::CodedLayer* const codes = take_codes(name, outputs, inputs)) {
    const weights::CodedColumns columns(what(name), *codes);
    result = weights::Linear(columns, arithmetic_, bias, parallel_);
    columns.let_go();
  } else {
    const weights::FileMatrix matrix = this->matrix(name, outputs, inputs);
    result = weights::Linear(matrix, arithmetic_, bias, parallel_, one_scale_);
    matrix.let_go();  // the panels are another form of it
  }
  bytes_ += result.bytes();
  return result;
}

void ModelTensors::expect_all_taken(std::string_view architecture) const {
  const auto refuse = [&](const std::string& name) {
    if (taken_.count(name) == 0)
      file_.fail(formats::joined("expected the tensors of ", architecture, ", got ",
                                 formats::in_quotes(file_.called(name)), " beside them"));
  };
  for (const formats::GgufTensor& tensor : file_.gguf.tensors) refuse(tensor.name);
  for (const auto& [name, codes] : file_.codes) refuse(name);
  for (const auto& [name, codes] : file_.ternary) refuse(name);
}

const formats::GgufTensor& ModelTensors::take(const std::string& name, const std::vector<std::int64_t>& sizes) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) file_.fail(said(name) + " is missing");
  const formats::GgufTensor* const tensor = found->second;
  expect_sizes(name, tensor->sizes, sizes);
  taken_.insert(name);
  parameters_ += tensor->count();
  return *tensor;
}

const formats::CodedLayer* ModelTensors::take_codes(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const auto found = file_.codes.find(name);
  if (found == file_.codes.end()) return nullptr;
  expect_sizes(name + ".weight", {found->second.out_features, found->second.in_features}, {rows, columns});
  taken_.insert(name);
  parameters_ += rows * columns;
  return &found->second;
}

void ModelTensors::expect_sizes(const std::string& name, const std::vector<std::int64_t>& got,
                                const std::vector<std::int64_t>& expected) const {
  if (got != expected)
    file_.fail(formats::joined(said(name), ": expected ", formats::listed(expected), ", got ", formats::listed(got)));
}

std::string layer_prefix(std::int64_t index) { return formats::joined("blk.", index, "."); }

std::array<LinearPart, 7> linear_parts(const Config& c) {
  const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  return {{{"attn_q", &LayerWeights::query, q, c.width},
           {"attn_k", &LayerWeights::key, kv, c.width},
           {"attn_v", &LayerWeights::value, kv, c.width},
           {"attn_output", &LayerWeights::output, c.width, q},
           {"ffn_gate", &LayerWeights::gate, c.inner, c.width},
           {"ffn_up", &LayerWeights::up, c.inner, c.width},
           {"ffn_down", &LayerWeights::down, c.width, c.inner}}};
}

LayerWeights norms_of_layer(ModelTensors& tensors, const Config& c, std::int64_t index) {
  const auto norm = [&](const char* name, std::int64_t size) {
    return tensors.vector(layer_prefix(index) + name + ".weight", size);
  };
  LayerWeights w;
  w.attention_norm = norm("attn_norm", c.width);
  w.inner_norm = norm("ffn_norm", c.width);
  if (c.architecture->head_norms) {
    w.query_norm = norm("attn_q_norm", c.head_size);
    w.key_norm = norm("attn_k_norm", c.head_size);
  }
  if (c.architecture->sub_norms) {
    w.attention_sub_norm = norm("attn_sub_norm", c.heads * c.head_size);
    w.inner_sub_norm = norm("ffn_sub_norm", c.inner);
  }
  if (c.architecture->end_norms) {
    w.attention_end_norm = norm("post_attention_norm", c.width);
    w.inner_end_norm = norm("post_ffw_norm", c.width);
  }
  return w;
}

}  // namespace bie::llm
