#include "bie/llm/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "llm/architectures.h"
#include "llm/model_tensors.h"

namespace bie::llm {
namespace {

/// A larger one drowns the other channels of a key in a step of codes: docs/measured/language-models.md.
constexpr float largest_key_bias = 64;

constexpr std::int64_t most_scores = 64;  // of a classifier

float largest_magnitude(const float* x, std::int64_t count) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

/// Says in the configuration how its keys are kept.
LayerWeights layer_of(ModelTensors& tensors, Config& c, std::int64_t index) {
  LayerWeights w = norms_of_layer(tensors, c, index);
  for (const LinearPart& part : linear_parts(c)) {
    const std::string name = layer_prefix(index) + part.name;
    const Vector bias = tensors.bias_of(name, part.outputs);
    w.*part.linear = tensors.linear(name, part.outputs, part.inputs, bias);
    if (part.linear == &LayerWeights::key)
      c.per_layer[static_cast<std::size_t>(index)].half_keys =
          bias != nullptr && largest_magnitude(bias.get(), part.outputs) > largest_key_bias;
  }
  return w;
}

}  // namespace

Model::Model(const std::string& path, Arithmetic arithmetic, const kernels::Parallel& parallel)
    : Model(open_model(path), arithmetic, parallel) {}

Model::Model(ModelFile file, Arithmetic arithmetic, const kernels::Parallel& parallel)
    : file_(std::move(file)), config_(read_config(file_)), arithmetic_(arithmetic) {
  const Config& c = config_;
  const bool one_scale = c.architecture->tensor_scales;
  ModelTensors tensors(file_, arithmetic, one_scale, parallel);
  embedding_ = std::make_unique<weights::FileMatrix>(tensors.matrix("token_embd", c.vocabulary, c.width));
  tensors.pass_over("rope_freqs.weight");
  // The largest matrix comes first: its file pages and its panels are there at the same time, and little else is.
  const bool has_head = !file_.is_tied();
  if (has_head)
    head_ = tensors.linear("output", c.vocabulary, c.width);
  else
    head_ = weights::Linear(*embedding_, arithmetic, nullptr, parallel, one_scale);
  if (const formats::GgufTensor* const scores = file_.gguf.find("cls.output.weight"))
    classifier_ =
        tensors.linear("cls.output", std::clamp<std::int64_t>(scores->count() / c.width, 1, most_scores), c.width);
  embedding_->let_go();
  for (std::int64_t i = 0; i < c.layers; ++i) layers_.push_back(layer_of(tensors, config_, i));
  output_norm_ = tensors.vector("output_norm.weight", c.width);
  tensors.expect_all_taken(c.architecture->name);
  parameters_ = tensors.parameters();
  weight_bytes_ = tensors.bytes() + (has_head ? 0 : head_.bytes());
}

}  // namespace bie::llm
