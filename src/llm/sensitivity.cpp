#include "llm/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "bie/formats/error.h"
#include "bie/kernels/log_probabilities.h"

namespace bie::llm {
namespace {

constexpr std::int64_t every = 2;   // rows of which one is compared
constexpr std::int64_t best = 256;  // tokens that are compared one by one

}  // namespace

Sensitivity::Sensitivity(const Model& model, const std::vector<std::int32_t>& tokens, std::int64_t window,
                         const kernels::Parallel& parallel)
    : model_(model), window_(window), parallel_(parallel), pass_(model.config(), CacheKind::f32, parallel) {
  for (std::int64_t at = 0; at + window <= std::ssize(tokens); at += window)
    sequences_.emplace_back(model.config(), CacheKind::f32).append(tokens.data() + at, window);
  const Session::Watch watch = [this](const weights::Linear& linear, const float* x, std::int64_t rows) {
    sums_[&linear].add(x, rows, linear.inputs());
  };
  pass_.watch(&watch);
  const std::int64_t vocabulary = model.config().vocabulary, k = std::min(best, vocabulary);
  for (std::size_t w = 0; w < sequences_.size(); ++w) {
    begin(w);
    pass_.embed(model.embedding());
    x_.emplace_back();
    for (std::int64_t i = 0; i < model.config().layers; ++i) {
      x_.back().push_back(pass_.x());
      pass_.run_layer(model.layers()[static_cast<std::size_t>(i)], i);
    }
    x_.back().push_back(pass_.x());
    const std::vector<float> own = logits(model.head());
    const std::int64_t rows = std::ssize(own) / vocabulary;
    if (!std::all_of(own.begin(), own.end(), [](float v) { return std::isfinite(v); }))
      throw formats::Error("the model's logits are NaN or infinite on this text");
    ids_.emplace_back(static_cast<std::size_t>(rows * k));
    logs_.emplace_back(static_cast<std::size_t>(rows * k));
    rest_.emplace_back(static_cast<std::size_t>(rows));
    kernels::best_log_probabilities(own.data(), rows, vocabulary, k, ids_.back().data(), logs_.back().data(),
                                    rest_.back().data(), parallel_);
  }
  pass_.watch(nullptr);
}

void Sensitivity::begin(std::size_t window) {
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < window_; ++i) rows.push_back({&sequences_[window], i, i % every == every - 1});
  pass_.begin(rows);
}

std::vector<float> Sensitivity::logits(const weights::Linear& head) {
  pass_.keep_read();
  pass_.read_head(model_.output_norm());
  return pass_.logits(head);
}

double Sensitivity::divergence(std::size_t window, const std::vector<float>& logits) {
  const std::int64_t vocabulary = model_.config().vocabulary, rows = std::ssize(logits) / vocabulary;
  if (!std::all_of(logits.begin(), logits.end(), [](float v) { return std::isfinite(v); }))
    throw formats::Error("the logits with quantised matrices are NaN or infinite on this text");
  std::vector<double> nats(static_cast<std::size_t>(rows));
  kernels::divergences(logits.data(), rows, vocabulary, std::min(best, vocabulary), ids_[window].data(),
                       logs_[window].data(), rest_[window].data(), nats.data(), parallel_);
  double sum = 0;
  for (const double of_row : nats) sum += of_row;
  return sum / static_cast<double>(rows) / static_cast<double>(sequences_.size());
}

double Sensitivity::of_layer(std::int64_t index, const LayerWeights& weights) {
  double sum = 0;
  for (std::size_t w = 0; w < sequences_.size(); ++w) {
    begin(w);
    pass_.x() = x_[w][static_cast<std::size_t>(index)];
    for (std::int64_t i = index; i < model_.config().layers; ++i)
      pass_.run_layer(i == index ? weights : model_.layers()[static_cast<std::size_t>(i)], i);
    sum += divergence(w, logits(model_.head()));
  }
  return sum;
}

double Sensitivity::of_ends(const weights::FileMatrix* table, const weights::Linear* head) {
  double sum = 0;
  for (std::size_t w = 0; w < sequences_.size(); ++w) {
    begin(w);
    if (table == nullptr) {
      pass_.x() = x_[w].back();
    } else {
      pass_.embed(*table);
      for (std::int64_t i = 0; i < model_.config().layers; ++i)
        pass_.run_layer(model_.layers()[static_cast<std::size_t>(i)], i);
    }
    sum += divergence(w, logits(head == nullptr ? model_.head() : *head));
  }
  return sum;
}

}  // namespace bie::llm
