// Tensors that a float net and its quantised twin have in common.
#pragma once

#include "bie/models/classifier.h"

namespace bie::train {

/// eps of the nets' BatchNorms: torch's default.
inline constexpr double norm_eps = 1e-5;

/// Gives `to` every tensor that `from` has under the same name and with the same sizes, but those of quantised layers.
void copy_common(models::Classifier& from, models::Classifier& to);

/// A parameter of a layer; undefined where it has none of that name.
at::Tensor tensor_of(const torch::nn::Module& module, const char* key);

}  // namespace bie::train
