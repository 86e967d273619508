// Post-training quantisation: a trained float net in 8 or 4 bits, from a few hundred images and without training.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bie/models/classifier.h"

namespace bie::train {

/// Rule that chooses a step size from values.
enum class StepRule {
  mse,         ///< the least mean square of what rounding and clipping change
  percentile,  ///< a given share of the values is not clipped
};
/// "mse" or "percentile".
const char* name(StepRule rule);
StepRule step_rule_of(const std::string& name);  ///< A ValueError for any other name.

struct PostTraining {
  int bits = 8;                             ///< 8 or 4, of the inner layers
  std::map<std::string, int> bits_of = {};  ///< of single layers, 32, 8 or 4
  StepRule rule = StepRule::mse;
  double percentile = 99.9;  ///< of the magnitudes, for StepRule::percentile
  bool fold = false;         ///< BatchNorms go into weights and biases, and the net is left without
  /// A scale an output channel instead of one a layer: in the BatchNorm behind the layer where there is one, else in
  /// the layer (QuantLayer::channel_scale).
  bool per_channel = false;
};

/// Effect of quantising one layer, on the calibration images and with the float net's activations.
struct LayerError {
  std::string name;
  int bits;
  double scale_a, scale_w;  ///< step sizes of activations and weights; of per-channel weights the geometric mean
  double saturated;         ///< share of the activations beyond the codes
  double error;             ///< root mean square of the output's change over that of the output
};

struct PostTrained {
  std::shared_ptr<models::Classifier> model;  ///< in evaluation mode, quantised layers packed
  std::vector<LayerError> layers;
};

/// `model` is a float net, in evaluation mode afterwards and otherwise left alone. The output's mean error of each
/// channel is taken off its norm or bias (Nagel et al. 2019, "Data-Free Quantization", section 4.2). Throws a
/// ValueError for a net that is quantised already, and for options that cannot be met.
PostTrained quantize(models::Classifier& model, const at::Tensor& calibration, const PostTraining& options);

/// The step size of `values` with codes of 8 or 4 bits, for tests and tools; positive even where all are zero.
double step_size(const at::Tensor& values, int bits, StepRule rule, double percentile);
/// One for each slice along the first axis.
at::Tensor step_sizes(const at::Tensor& values, int bits, StepRule rule, double percentile);

}  // namespace bie::train
