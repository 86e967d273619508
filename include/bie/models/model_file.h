// A classifier in one safetensors file, rebuilt from the file alone.
#pragma once

#include <memory>
#include <string>

#include "bie/models/models.h"

namespace bie::models {

enum class SavedForm {
  packed,    ///< quantised layers with qweight alone: what is shipped
  training,  ///< each layer's weight in the form it trains in, float or int8
};

/// Tensors under their state-dict names. The metadata key "bie" holds one JSON string with "format_version" and the
/// fields of ModelConfig; "crc32" holds data::checksum of both. The model is not changed. Written to a temporary and
/// renamed, so a failure leaves the old file.
void save_model(Classifier& model, const std::string& path, SavedForm form = SavedForm::packed);

/// The model in evaluation mode, each layer in the form of the file: a packed weight is never held as floats. torch's
/// global generator is left as it was. A ValueError naming the file and the entry for anything missing, extra, of the
/// wrong shape or dtype, for values that are not those that were written, and for a format version newer than this
/// build.
std::shared_ptr<Classifier> load_model(const std::string& path);

/// The "bie" metadata of a model as JSON text, and back; `path` is named in sentences. A training checkpoint holds it
/// too.
std::string config_json(const ModelConfig& config);
ModelConfig parse_config(const std::string& json, const std::string& path);

}  // namespace bie::models
