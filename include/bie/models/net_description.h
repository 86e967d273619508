// A net as a user describes it in JSON, in place of one of the named architectures.
#pragma once

#include <string>

#include "bie/models/classifier.h"

namespace bie::models {

/// Reads
///   {"format_version": 1,
///    "layers": [{"type": "conv", "out": 32, "kernel": 5, "stride": 1, "padding": 2, "bits": 8, "activation": "relu"},
///               {"type": "pool", "size": 2},
///               {"type": "linear", "out": 128, "activation": "prelu"}]} into ModelConfig::layers and arch "custom". A
/// conv needs `out` and `kernel`, a linear `out`, a pool `size`. A linear that yields the logits follows by itself.
/// docs/cli.md tells users.
/// @throws c10::ValueError, one sentence with the file, the line and the entry at fault.
ModelConfig load_net_description(const std::string& path, ModelConfig config);

/// The layers as the JSON text of their array, and back.
std::string layers_json(const std::vector<LayerSpec>& layers);
std::vector<LayerSpec> parse_layers(const std::string& json);

}  // namespace bie::models
