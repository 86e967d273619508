// A run's way to and from its checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bie/data/dataset.h"
#include "bie/models/classifier.h"
#include "bie/train/checkpoint.h"
#include "bie/train/history.h"
#include "bie/train/trainer.h"
#include "train/loop/optimizers.h"

namespace bie::train {

class RunCheckpoints {
 public:
  RunCheckpoints(models::Classifier& model, Optimizers& optimizers, const data::Dataset& data,
                 const TrainOptions& options, const Recipe& recipe);

  /// State of a resumed run.
  struct Past {
    std::int64_t step = 0;  ///< steps done; 0 where the run starts from the beginning
    std::vector<Epoch> history = {};
    EpochPart part = {};          ///< of the epoch that it is in
    double seconds = 0;           ///< of all its processes
    layers::StateDict best = {};  ///< of the model after the best epoch, with TrainOptions::keep_best
  };

  void save(const Past& past, std::int64_t epoch) const;
  Past resume(const std::function<void(const std::string&)>& note) const;

 private:
  models::Classifier& model_;
  Optimizers& optimizers_;
  const TrainOptions& options_;
  std::string json_;  ///< what has to be the same for a run to go on
};

/// A diverged run must not take the place of its good checkpoints, nor end as if it had been trained.
void check_finite(const layers::StateDict& tensors, std::int64_t epoch);

}  // namespace bie::train
