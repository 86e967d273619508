// A model in one safetensors file, rebuilt from the file alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bie/models/classifier.h"

namespace bie::models {

enum class SavedForm {
  packed,    ///< quantised layers with qweight alone: what is shipped
  training,  ///< each layer's weight in the form it trains in, float or int8
};

/// Tensors under their state-dict names. The metadata key "bie" holds Model::description and, but for a classifier,
/// "kind"; "crc32" holds data::checksum of both. The model is not changed. Written to a temporary and renamed, so a
/// failure leaves the old file.
void save_model(Model& model, const std::string& path, SavedForm form = SavedForm::packed);

/// The model in evaluation mode, each layer in the form of the file: a packed weight is never held as floats. torch's
/// global generator is left as it was. Throws a ValueError naming the file and the entry for anything missing, extra,
/// of the wrong shape or dtype, for values that are not those that were written, for a kind that is not among `kinds`,
/// and for a format version newer than this build.
std::shared_ptr<Model> load_model(const std::string& path, const std::vector<ModelKind>& kinds = model_kinds());
/// load_model; throws a ValueError if the model is no classifier.
std::shared_ptr<Classifier> load_classifier(const std::string& path);

}  // namespace bie::models
