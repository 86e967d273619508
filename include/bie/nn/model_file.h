// A trained classifier in one safetensors file: weights packed at rest, the model rebuilt from the file alone.
#pragma once

#include <memory>
#include <string>

#include "bie/nn/models.h"

namespace bie::nn {

/// Tensors under their state-dict names; quantised layers with qweight in place of weight. The metadata key "bie" holds
/// one JSON string: {"format_version": 1, "arch", "bits", "image", "classes", "hidden", "depth"}.
/// The model is not changed. Written to a temporary and renamed, so a failure leaves the old file.
void save_model(Classifier& model, const std::string& path);

/// The model in evaluation mode. A ValueError naming the file and the entry for anything missing, extra, of the wrong
/// shape or dtype, and for a format version newer than this build.
std::shared_ptr<Classifier> load_model(const std::string& path);

}  // namespace bie::nn
