// Changes the images of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "bie/train/augmentation.h"

namespace bie::train {

/// Every number follows from the seed, the step and the image's place in it. They are drawn for a whole epoch, so that
/// a step on a GPU waits for no copy.
class Augmenter {
 public:
  Augmenter(const Augmentations& chosen, at::Device device, std::int64_t batch, std::uint64_t seed)
      : chosen_(chosen), device_(device), batch_(batch), seed_(seed) {}

  /// Draws the numbers of steps first_step to first_step + steps - 1, of images of this width.
  void start_epoch(std::int64_t first_step, std::int64_t steps, std::int64_t width);
  /// float32 [batch, channels, height, width] of the epoch's step, changed.
  at::Tensor apply(at::Tensor images, std::int64_t step) const;

 private:
  void draw_crops(std::int64_t first_step, std::int64_t steps, std::int64_t width);
  at::Tensor cropped(const at::Tensor& images, std::int64_t step) const;
  at::Tensor rotated(const at::Tensor& images, std::int64_t step) const;
  at::Tensor coloured(const at::Tensor& images, std::int64_t step) const;

  Augmentations chosen_;
  at::Device device_;
  std::int64_t batch_;
  std::uint64_t seed_;
  /// [steps * batch]: a crop's first row, its first column, and 1 or -1: to its right or left.
  at::Tensor top_, left_, way_;
  at::Tensor angles_;   ///< [steps * batch], radians
  at::Tensor colours_;  ///< [3, steps * batch]: factors of brightness, contrast and saturation
};

}  // namespace bie::train
