#include "bie/models/model_file.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

#include "bie/data/checksum.h"
#include "bie/data/tensor_files.h"
#include "bie/layers/state_dict.h"
#include "formats/json_text.h"
#include "layers/unfilled.h"

namespace bie::models {
namespace {

using Json = nlohmann::json;

std::shared_ptr<Model> make_classifier(const std::string& description, std::int64_t bytes) {
  const ModelConfig config = parse_config(description);
  const std::int64_t weights = weight_count(config);
  TORCH_CHECK_VALUE(weights / 8 <= bytes, "it describes ", weights, " weights, the file holds ", bytes, " bytes");
  return make_model(config);
}

/// The kind of a file's description, which names its kind unless it is the first.
const ModelKind& kind_of(const std::string& description, const std::vector<ModelKind>& kinds) {
  const Json json = formats::parse_json(description);
  TORCH_CHECK_VALUE(json.is_object(), "not a JSON object");
  const Json kind = json.value("kind", Json());
  if (kind.is_null()) return kinds.front();
  TORCH_CHECK_VALUE(kind != "training", "expected a model, got a training checkpoint");
  for (const ModelKind& known : kinds)
    if (kind == known.name) return known;
  TORCH_CHECK_VALUE(false, "the kind of model is ", formats::shown(kind), ", which this build does not know");
}

std::string description_of(const Model& model) {
  std::string text = model.description();
  if (model.kind() == std::string(model_kinds().front().name)) return text;
  Json json = Json::parse(text);
  json["kind"] = model.kind();
  return json.dump();
}

}  // namespace

const std::vector<ModelKind>& model_kinds() {
  static const std::vector<ModelKind> kinds = {{classifier_kind, make_classifier}};
  return kinds;
}

void save_model(Model& model, const std::string& path, SavedForm form) {
  const layers::StateDict tensors = layers::state_dict(model, form == SavedForm::packed);
  const std::string text = description_of(model);
  data::save_safetensors(path, tensors, {{"bie", text}, {"crc32", std::to_string(data::checksum(tensors, text))}});
}

std::shared_ptr<Model> load_model(const std::string& path, const std::vector<ModelKind>& kinds) {
  const data::SafetensorsFile file = data::load_safetensors(path);
  const auto metadata = file.metadata.find("bie");
  TORCH_CHECK_VALUE(metadata != file.metadata.end(), path, ": no metadata entry 'bie', this is not a model of ours");
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  std::shared_ptr<Model> model;
  try {
    const layers::Unfilled unfilled;
    model = kind_of(metadata->second, kinds).make(metadata->second, bytes);
  } catch (const c10::ValueError& error) {
    TORCH_CHECK_VALUE(false, path, ": the metadata entry 'bie': ", error.what_without_backtrace());
  }
  try {
    layers::load_state_dict(*model, file.tensors);
  } catch (const c10::ValueError& error) {
    TORCH_CHECK_VALUE(false, path, ": ", error.what_without_backtrace());
  }
  const auto crc = file.metadata.find("crc32");
  TORCH_CHECK_VALUE(
      crc == file.metadata.end() || crc->second == std::to_string(data::checksum(file.tensors, metadata->second)), path,
      ": damaged, its tensors are not those that were written (crc32)");
  model->eval();
  return model;
}

std::shared_ptr<Classifier> load_classifier(const std::string& path) {
  const std::shared_ptr<Model> model = load_model(path);
  const auto classifier = std::dynamic_pointer_cast<Classifier>(model);
  TORCH_CHECK_VALUE(classifier != nullptr, path, ": expected a classifier, got a model of kind '", model->kind(), "'");
  return classifier;
}

}  // namespace bie::models
