// What a run watches of its low-bit layers, by their names.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "bie/nn/models.h"

namespace bie::train {

using ByLayer = std::map<std::string, double>;

/// The activations' step sizes of the 8- and 4-bit layers.
ByLayer step_sizes(const nn::Classifier& model);

/// The signs that the binary weights had when this was made.
class Signs {
 public:
  explicit Signs(const nn::Classifier& model);

  /// The share of a layer's weights whose sign is another one now.
  ByLayer flipped(const nn::Classifier& model) const;
  /// Of all binary weights; NaN where there are none.
  double flipped_share(const nn::Classifier& model) const;

 private:
  std::map<std::string, at::Tensor> negative_;
};

}  // namespace bie::train
