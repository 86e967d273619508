// The training data on the device that trains, and the batch of each step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "bie/data/dataset.h"
#include "train/loop/augmenter.h"

namespace bie::train {

/// Images, float32 in [0, 1], where a model on that device wants them: channels last on a GPU.
at::Tensor on_device(const at::Tensor& images, at::Device device);

/// Each batch follows from the seed and the step alone, so that a resumed run has it without a generator's state.
class Batches {
 public:
  /// @param batch  images a step; those that do not fill a step are left out of their epoch.
  Batches(const data::Dataset& data, at::Device device, std::int64_t batch, const Augmentations& augmentations,
          std::uint64_t seed);

  struct Batch {
    at::Tensor images, labels;
  };
  Batch batch(std::int64_t step);

 private:
  void start_epoch(std::int64_t epoch);

  at::Tensor images_;  ///< as the data set has them; on the device, unless they are too many for it
  at::Tensor labels_;
  at::Device device_;
  std::int64_t count_, batch_;
  bool augmented_;
  std::uint64_t seed_;
  Augmenter augmenter_;
  std::int64_t epoch_ = -1;
  at::Tensor order_;  ///< [n]: which images the epoch's steps take
};

}  // namespace bie::train
