#include "bie/llm/model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "bie/formats/error.h"
#include "bie/weights/folder_matrices.h"
#include "llm/architectures.h"
#include "weights/elements.h"

namespace bie::llm {
namespace {

/// Takes tensors by name, checks their shapes, and knows which ones nobody took.
class Tensors {
 public:
  Tensors(const ModelFile& file, Arithmetic arithmetic, bool one_scale, const kernels::Parallel& parallel)
      : file_(file), arithmetic_(arithmetic), one_scale_(one_scale), parallel_(parallel) {
    for (const formats::GgufTensor& tensor : file.gguf.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  bool has(const std::string& name) const { return by_name_.count(name) > 0; }

  Vector vector(const std::string& name, std::int64_t size) {
    const formats::GgufTensor& tensor = take(name, {size});
    formats::GgufTensor row = tensor;
    row.sizes = {1, size};
    const weights::FileMatrix matrix(what(name), row);
    if (matrix.is_coded()) file_.fail(formats::joined(said(name), ": expected floats, got ", tensor.type->name));
    const std::shared_ptr<float[]> values(new float[static_cast<std::size_t>(size)]);
    matrix.read_row(0, values.get());
    return values;
  }

  /// NAME [rows, columns], of floats, of blocks, of ternary codes or of an embedding's codes.
  weights::FileMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
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

  /// NAME.bias where the files have it, else null.
  Vector bias(const std::string& name, std::int64_t outputs) {
    return has(name + ".bias") ? vector(name + ".bias", outputs) : nullptr;
  }

  /// The bias of a linear, which codes carry with them.
  Vector bias_of(const std::string& name, std::int64_t outputs) {
    const auto codes = file_.codes.find(name);
    if (codes == file_.codes.end() || codes->second.tensors.count("bias") == 0) return bias(name, outputs);
    return weights::shared_floats(codes->second.tensors.at("bias"));
  }

  /// NAME and, where the files have it, its bias.
  weights::Linear linear(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    return linear(name, outputs, inputs, bias(name, outputs));
  }
  weights::Linear linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, const Vector& bias) {
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

  void expect_all_taken(std::string_view architecture) const {
    const auto refuse = [&](const std::string& name) {
      if (taken_.count(name) == 0)
        file_.fail(formats::joined("expected the tensors of ", architecture, ", got ",
                                   formats::in_quotes(file_.called(name)), " beside them"));
    };
    for (const formats::GgufTensor& tensor : file_.gguf.tensors) refuse(tensor.name);
    for (const auto& [name, codes] : file_.codes) refuse(name);
    for (const auto& [name, codes] : file_.ternary) refuse(name);
  }

  void pass_over(const std::string& name) { taken_.insert(name); }
  std::int64_t parameters() const { return parameters_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  const formats::GgufTensor& take(const std::string& name, const std::vector<std::int64_t>& sizes) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) file_.fail(said(name) + " is missing");
    const formats::GgufTensor* const tensor = found->second;
    expect_sizes(name, tensor->sizes, sizes);
    taken_.insert(name);
    parameters_ += tensor->count();
    return *tensor;
  }

  /// Null where the files have no codes under this name.
  const formats::CodedLayer* take_codes(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const auto found = file_.codes.find(name);
    if (found == file_.codes.end()) return nullptr;
    expect_sizes(name + ".weight", {found->second.out_features, found->second.in_features}, {rows, columns});
    taken_.insert(name);
    parameters_ += rows * columns;
    return &found->second;
  }

  void expect_sizes(const std::string& name, const std::vector<std::int64_t>& got,
                    const std::vector<std::int64_t>& expected) const {
    if (got != expected)
      file_.fail(formats::joined(said(name), ": expected ", formats::listed(expected), ", got ", formats::listed(got)));
  }

  std::string said(const std::string& name) const { return "the tensor " + formats::in_quotes(file_.called(name)); }
  std::string what(const std::string& name) const {
    return formats::joined(file_.kind, " ", file_.path(), ": tensor ", formats::in_quotes(file_.called(name)));
  }

  const ModelFile& file_;
  Arithmetic arithmetic_;
  bool one_scale_;  ///< ternary matrices of one scale are multiplied as such
  const kernels::Parallel& parallel_;
  std::unordered_map<std::string_view, const formats::GgufTensor*> by_name_;
  std::set<std::string> taken_;
  std::int64_t parameters_ = 0, bytes_ = 0;
};

/// A larger one drowns the other channels of a key in a step of codes: docs/measured/language-models.md.
constexpr float largest_key_bias = 64;

float largest_magnitude(const float* x, std::int64_t count) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

/// Says in the configuration how its keys are kept.
LayerWeights layer_of(Tensors& tensors, Config& c, std::int64_t index) {
  const std::string at = formats::joined("blk.", index, ".");
  const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  LayerWeights w;
  w.attention_norm = tensors.vector(at + "attn_norm.weight", c.width);
  w.query = tensors.linear(at + "attn_q", q, c.width);
  const Vector key_bias = tensors.bias_of(at + "attn_k", kv);
  w.key = tensors.linear(at + "attn_k", kv, c.width, key_bias);
  c.per_layer[static_cast<std::size_t>(index)].half_keys =
      key_bias != nullptr && largest_magnitude(key_bias.get(), kv) > largest_key_bias;
  w.value = tensors.linear(at + "attn_v", kv, c.width);
  if (c.architecture->head_norms) {
    w.query_norm = tensors.vector(at + "attn_q_norm.weight", c.head_size);
    w.key_norm = tensors.vector(at + "attn_k_norm.weight", c.head_size);
  }
  if (c.architecture->sub_norms) {
    w.attention_sub_norm = tensors.vector(at + "attn_sub_norm.weight", q);
    w.inner_sub_norm = tensors.vector(at + "ffn_sub_norm.weight", c.inner);
  }
  w.output = tensors.linear(at + "attn_output", c.width, q);
  if (c.architecture->end_norms) {
    w.attention_end_norm = tensors.vector(at + "post_attention_norm.weight", c.width);
    w.inner_end_norm = tensors.vector(at + "post_ffw_norm.weight", c.width);
  }
  w.inner_norm = tensors.vector(at + "ffn_norm.weight", c.width);
  w.gate = tensors.linear(at + "ffn_gate", c.inner, c.width);
  w.up = tensors.linear(at + "ffn_up", c.inner, c.width);
  w.down = tensors.linear(at + "ffn_down", c.width, c.inner);
  return w;
}

}  // namespace

Model::Model(const std::string& path, Arithmetic arithmetic, const kernels::Parallel& parallel)
    : file_(open_model(path)), config_(read_config(file_)), arithmetic_(arithmetic) {
  const Config& c = config_;
  const bool one_scale = c.architecture->tensor_scales;
  Tensors tensors(file_, arithmetic, one_scale, parallel);
  embedding_ = std::make_unique<weights::FileMatrix>(tensors.matrix("token_embd", c.vocabulary, c.width));
  tensors.pass_over("rope_freqs.weight");
  for (std::int64_t i = 0; i < c.layers; ++i) layers_.push_back(layer_of(tensors, config_, i));
  output_norm_ = tensors.vector("output_norm.weight", c.width);
  const bool has_head = tensors.has("output.weight") || file_.codes.count("output") > 0;
  if (has_head)
    head_ = tensors.linear("output", c.vocabulary, c.width);
  else
    head_ = weights::Linear(*embedding_, arithmetic, nullptr, parallel, one_scale);
  embedding_->let_go();
  tensors.expect_all_taken(c.architecture->name);
  parameters_ = tensors.parameters();
  weight_bytes_ = tensors.bytes() + (has_head ? 0 : head_.bytes());
}

}  // namespace bie::llm
