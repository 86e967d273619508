// Statistics of a run's low-bit layers, by their names.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "bie/models/classifier.h"

namespace bie::train {

using ByLayer = std::map<std::string, double>;

/// The activations' step sizes of the 8- and 4-bit layers.
ByLayer step_sizes(const models::Classifier& model);

/// The signs that the binary weights had when this was made.
class Signs {
 public:
  explicit Signs(const models::Classifier& model);

  /// The share of a layer's weights whose sign is another one now.
  ByLayer flipped(const models::Classifier& model) const;
  /// The share over all binary weights; NaN if there are none.
  double flipped_share(const models::Classifier& model) const;

 private:
  std::map<std::string, at::Tensor> negative_;
};

}  // namespace bie::train
