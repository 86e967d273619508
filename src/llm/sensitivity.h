// How far a model's last logits move when some of its matrices are others.
// Source: docs/spec/language-models.md#plans-for-a-size.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/llm/model.h"
#include "llm/decoder.h"
#include "llm/square_sums.h"

namespace bie::llm {

/// Keeps what every layer of a model reads on a text, so that a layer's matrices are tried from there on.
class Sensitivity {
 public:
  /// @param tokens  windows of them, each from its beginning; every second row's logits are compared.
  Sensitivity(const Model& model, const std::vector<std::int32_t>& tokens, std::int64_t window,
              const kernels::Parallel& parallel);

  /// The mean of x^2 for each input of a linear.
  std::vector<float> importance(const weights::Linear& linear) const { return sums_.at(&linear).means(); }

  /// Nats between the model's choices and those with other linears in one layer.
  double of_layer(std::int64_t index, const LayerWeights& weights);
  /// Likewise with another table of embeddings or another head; null: the model's own.
  double of_ends(const weights::FileMatrix* table, const weights::Linear* head);

 private:
  void begin(std::size_t window);
  std::vector<float> logits(const weights::Linear& head);
  double divergence(std::size_t window, const std::vector<float>& logits);

  const Model& model_;
  std::int64_t window_;
  const kernels::Parallel& parallel_;
  Decoder pass_;
  std::vector<Sequence> sequences_;                 ///< a window each
  std::vector<std::vector<std::vector<float>>> x_;  ///< of each window, before each layer and behind the last one
  std::map<const weights::Linear*, SquareSums> sums_;
  /// The model's own choices in each window: the best tokens of its rows and the rest.
  std::vector<std::vector<std::int32_t>> ids_;
  std::vector<std::vector<double>> logs_, rest_;
};

}  // namespace bie::llm
