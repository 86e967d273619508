// The training loop behind `bie train`: one recipe a bit width, chosen so that training works without knowing anything.
#pragma once

#include <cstdint>
#include <functional>

#include "bie/io/dataset.h"
#include "bie/nn/models.h"

namespace bie::train {

struct TrainOptions {
  std::int64_t epochs = 30;
  std::int64_t batch = 64;
  double lr = 1e-3;            ///< of the float parameters (Adam), cosine to 0
  double binary_lr = 1e-2;     ///< of the int8 binary weights (DiodeMix), cosine to 0
  bool freeze_binary = false;  ///< leave the int8 weights as they start: the twin that shows what training them adds
  std::uint64_t seed = 0;      ///< order of the data and start of the optimizer; the model has been made before
};

struct Progress {
  std::int64_t epoch, epochs;  ///< epochs done, of how many
  std::int64_t step, steps;    ///< steps done, of how many
  double loss;                 ///< mean of the epoch so far
};

struct TrainResult {
  double test_accuracy;
  double flipped;  ///< share of binary weights whose sign differs from the start's; NaN without binary weights
  double seconds;
};

/// Trains in place and leaves the model in evaluation mode. `report` is called after every step; it may be empty.
/// A ValueError where data and model do not fit each other or an option is out of range.
TrainResult fit(nn::Classifier& model, const io::Dataset& data, const TrainOptions& options,
                const std::function<void(const Progress&)>& report);

/// Share of images whose largest logit is the label's, in evaluation mode.
double accuracy(nn::Classifier& model, const at::Tensor& images, const at::Tensor& labels);

/// Median seconds of one forward pass over the first `batch` images (repeated as needed), evaluation mode.
double latency(nn::Classifier& model, const at::Tensor& images, std::int64_t batch, int repeats);

}  // namespace bie::train
