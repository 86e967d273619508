// One vector for a text, of the states of its tokens. Source: docs/spec/language-models.md#embeddings-and-ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "bie/llm/config.h"
#include "bie/llm/model.h"

namespace bie::llm {

/// Takes the states of a text, and has its vector once it has all that it reads.
class Pool {
 public:
  /// @param width  elements of a state.
  Pool(Pooling pooling, std::int64_t width) : pooling_(pooling), width_(width) {}

  /// Whether it reads all states, else the last one alone.
  bool reads_all() const { return pooling_ == Pooling::mean || pooling_ == Pooling::first; }
  /// Forgets what it has taken.
  void clear();
  /// Takes the next states [rows, width].
  void add(const float* states, std::int64_t rows);
  std::vector<float> vector() const;

 private:
  Pooling pooling_;
  std::int64_t width_, rows_ = 0;
  std::vector<double> sums_;
  std::vector<float> state_;
};

/// The first `size` elements, divided by the root of the sum of their squares; zeros stay zeros.
std::vector<float> unit_vector(const std::vector<float>& x, std::int64_t size);

/// How well a document answers a query, of the vector of their text.
/// @param model  with a classifier.
/// @throws formats::Error where the classifier gives no numbers.
double rank_of(const Model& model, const std::vector<float>& vector);

}  // namespace bie::llm
