// The training data on the device that trains, and the batch of each step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "bie/data/dataset.h"
#include "bie/train/augmentation.h"

namespace bie::train {

/// Images where a model on that device wants them: channels last on a GPU.
at::Tensor on_device(const at::Tensor& images, at::Device device);

/// Each batch follows from the seed and the step alone, so that a resumed run has it without a generator's state.
class Batches {
 public:
  /// @param batch  images a step; those that do not fill a step are left out of their epoch.
  Batches(const data::Dataset& data, at::Device device, std::int64_t batch, Augmentation augmentation,
          std::uint64_t seed);

  struct Batch {
    at::Tensor images, labels;
  };
  Batch batch(std::int64_t step);

 private:
  void start_epoch(std::int64_t epoch);

  at::Tensor images_;  ///< [n, height, width, channels], with a border of zeros where it is cropped away again
  at::Tensor labels_;
  std::int64_t count_, height_, width_, batch_;
  Augmentation augmentation_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  at::Tensor order_;             ///< [n]: which images the epoch's steps take
  at::Tensor top_, left_, way_;  ///< [n]: the crop's first row, its first column, and 1 or -1: to its right or left
  at::Tensor rows_, columns_;    ///< 0, 1, ... of an image
};

}  // namespace bie::train
