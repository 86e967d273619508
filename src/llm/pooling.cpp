#include "bie/llm/pooling.h"

#include <algorithm>
#include <cmath>

#include "bie/formats/error.h"
#include "bie/kernels/exact_math.h"
#include "bie/kernels/log_probabilities.h"

namespace bie::llm {

void Pool::clear() {
  rows_ = 0;
  sums_.clear();
  state_.clear();
}

void Pool::add(const float* states, std::int64_t rows) {
  if (rows == 0) return;
  const auto width = static_cast<std::size_t>(width_);
  if (pooling_ == Pooling::mean) {
    sums_.resize(width);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < width; ++i)
        sums_[i] += static_cast<double>(states[r * width_ + static_cast<std::int64_t>(i)]);
  } else if (pooling_ != Pooling::first || rows_ == 0) {
    const float* const state = pooling_ == Pooling::first ? states : states + (rows - 1) * width_;
    state_.assign(state, state + width_);
  }
  rows_ += rows;
}

std::vector<float> Pool::vector() const {
  if (pooling_ != Pooling::mean) return state_;
  std::vector<float> mean;
  mean.reserve(sums_.size());
  for (const double sum : sums_) mean.push_back(static_cast<float>(sum / static_cast<double>(rows_)));
  return mean;
}

std::vector<float> unit_vector(const std::vector<float>& x, std::int64_t size) {
  std::vector<float> unit(x.begin(), x.begin() + size);
  double squares = 0;
  for (const float v : unit) squares += static_cast<double>(v) * static_cast<double>(v);
  if (squares == 0) return unit;
  const double length = std::sqrt(squares);
  for (float& v : unit) v = static_cast<float>(static_cast<double>(v) / length);
  return unit;
}

double rank_of(const Model& model, const std::vector<float>& vector) {
  const weights::Linear& classifier = *model.classifier();
  std::vector<float> scores(static_cast<std::size_t>(classifier.outputs()));
  if (classifier.run(1, vector.data(), scores.data(), kernels::serial()) != kernels::Status::ok)
    throw formats::Error("the model's classifier cannot be run");
  if (!std::all_of(scores.begin(), scores.end(), [](float score) { return std::isfinite(score); }))
    throw formats::Error("the model's classifier gives a number that is infinite or none");
  if (scores.size() == 1) return static_cast<double>(scores[0]);
  return kernels::exact_exp(kernels::log_sum_of(scores.data(), classifier.outputs()).of(scores[0]));
}

}  // namespace bie::llm
