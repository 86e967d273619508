// Training that starts from a trained float net.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "bie/models/classifier.h"

namespace bie::train {

/// The configuration with the net of a trained one: architecture, sizes, layers and norms.
models::ModelConfig with_net_of(models::ModelConfig config, const models::ModelConfig& source);

/// Gives a new model the weights, norms and biases of a trained float net whose layers have the same shapes, each 8-
/// and 4-bit layer the step size of its activation that has the least mean square error on the calibration images
/// (StepRule::mse). A last layer for another number of classes, and what the float net does not have (a BatchNorm in
/// front of a binary layer), stay as they are made.
/// @param source       in evaluation mode afterwards, otherwise left alone
/// @param calibration  float32 [n, channels, height, width]
/// @return the names of the layers that stay as they are made
/// @throws c10::ValueError, one sentence, for a source that is quantised and for layers of other shapes.
std::vector<std::string> start_from(models::Classifier& model, models::Classifier& source,
                                    const at::Tensor& calibration);

}  // namespace bie::train
