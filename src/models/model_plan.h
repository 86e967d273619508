// The linears and convolutions of a classifier, from its configuration alone: names, sizes and bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/models/classifier.h"

namespace bie::models {

struct PlannedLayer {
  std::string name;
  std::int64_t in, out;
  std::int64_t kernel = 0;  ///< of a square convolution; 0: a linear
  std::int64_t stride = 1, padding = 0;
  int bits = 32;

  bool is_conv() const { return kernel > 0; }
  std::int64_t weights() const { return in * out * (is_conv() ? kernel * kernel : 1); }
};

/// In the order of the forward pass; the last is the head, which yields the logits. Throws a ValueError for an unknown
/// architecture, layer name or bit width, and for sizes that cannot be.
std::vector<PlannedLayer> plan(const ModelConfig& config);

/// `depth` and `width` as they are, given or the architecture's own; 0 where it has none, and for an unknown one.
std::int64_t depth_of(const ModelConfig& config);
std::int64_t width_of(const ModelConfig& config);
/// Whether each of them is the architecture's own.
bool has_own_sizes(const ModelConfig& config);

/// Whether the net begins with a BatchNorm, and whether that one has learned numbers.
bool normalises_input(const ModelConfig& config, const PlannedLayer& first);
bool learns_input_norm(const ModelConfig& config, const PlannedLayer& first);

}  // namespace bie::models
