#include "cli/support/inspect_weights.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <variant>
#include <vector>

#include "bie/formats/coded_layers.h"
#include "bie/formats/error.h"
#include "bie/formats/gguf.h"
#include "bie/formats/weights_folder.h"
#include "cli/support/text.h"
#include "formats/json_text.h"

namespace bie::cli {
namespace {

constexpr const char* value_types[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                       "bool",  "string", "array",  "uint64", "int64",  "float64"};
/// @param is_own  the file is bie's.
const char* name_of(formats::CodedLayer::Kind kind, bool is_own) {
  constexpr const char* names[] = {
      "GPTQ", "GPTQ version 2", "GreenBit legacy", "GreenBit layer-mix", "GreenBit channel-mix", "embedding"};
  return is_own && kind == formats::CodedLayer::Kind::gba ? "linear" : names[static_cast<int>(kind)];
}

template <class T>
constexpr bool is_list = false;
template <class T>
constexpr bool is_list<std::vector<T>> = true;

/// A number or a text; of a list its length and its type.
Json value_json(const formats::GgufValue& value) {
  const std::string type = value_types[static_cast<int>(value.type)];
  return std::visit(
      [&]<class T>(const T& v) {
        if constexpr (is_list<T>)
          return Json{{"length", v.size()}, {"type", type}};
        else if (value.type == formats::GgufValueType::boolean)
          return Json(v != T());
        else
          return Json(v);
      },
      value.value);
}

/// The facts that people ask of a language model first: its architecture and context, where the file says them, its
/// numbers, and how many bytes each type takes.
Json model_json(const formats::GgufFile& file, const nlohmann::json& metadata) {
  std::map<std::string, std::int64_t> bytes_of_type;
  std::int64_t parameters = 0, bytes = 0;
  for (const formats::GgufTensor& t : file.tensors) {
    parameters += t.count();
    bytes += t.bytes->size;
    bytes_of_type[std::string(t.type->name)] += t.bytes->size;
  }
  const nlohmann::json architecture = metadata.value("general.architecture", nlohmann::json());
  nlohmann::json context;
  if (architecture.is_string())
    context = metadata.value(architecture.get<std::string>() + ".context_length", nlohmann::json());
  return {{"architecture", architecture},
          {"context", context},
          {"parameters", parameters},
          {"bytes", bytes},
          {"bytes_of_type", bytes_of_type}};
}

Json gguf_json(const std::string& path) {
  const formats::GgufFile file = formats::load_gguf(path);
  // Sorted by its keys, of which a file may hold any number: the ordered object of Json looks for each from the front.
  nlohmann::json metadata = nlohmann::json::object();
  Json tensors = Json::array();
  for (const auto& [key, value] : file.metadata) metadata[key] = value_json(value);
  for (const formats::GgufTensor& t : file.tensors)
    tensors.push_back({{"name", t.name}, {"dtype", t.type->name}, {"shape", t.sizes}, {"bytes", t.bytes->size}});
  return {{"file", path},
          {"kind", "GGUF file"},
          {"model", model_json(file, metadata)},
          {"metadata", metadata},
          {"tensors", tensors}};
}

/// The same facts of a folder that has a configuration.
Json folder_model_json(const formats::WeightsFolder& folder, const std::string& text) {
  const nlohmann::json config = formats::parse_json(text);
  if (!config.is_object() || !config.contains("model_type")) return {};
  std::map<std::string, std::int64_t> bytes_of_type;
  std::int64_t bytes = 0;
  for (const auto& [name, array] : folder.arrays) {
    const std::int64_t size = array.count() * formats::size_of(array.element);
    bytes += size;
    bytes_of_type[std::string(formats::name(array.element))] += size;
  }
  return {{"architecture", config["model_type"]},
          {"context", config.value("max_position_embeddings", nlohmann::json())},
          {"bytes", bytes},
          {"bytes_of_type", bytes_of_type}};
}

Json folder_json(const std::string& path) {
  const formats::WeightsFolder folder = formats::load_weights_folder(path);
  Json result = {{"file", path}, {"kind", "folder of weights"}};
  if (const auto config = folder.configs.find("config.json"); config != folder.configs.end())
    if (Json model = folder_model_json(folder, config->second); !model.is_null()) result["model"] = std::move(model);
  try {
    Json layers = Json::array();
    for (const auto& [name, layer] : formats::coded_layers(folder).layers)
      layers.push_back({{"name", name},
                        {"kind", name_of(layer.kind, !folder.own.empty())},
                        {"bits", layer.bits},
                        {"group_size", layer.group},
                        {"in_features", layer.in_features},
                        {"out_features", layer.out_features}});
    result["layers"] = layers;
  } catch (const formats::Error& error) {
    result["not_read"] = error.what();  // its tensors are listed all the same
  }
  Json tensors = Json::array();
  for (const auto& [name, array] : folder.arrays)
    tensors.push_back({{"name", name},
                       {"dtype", formats::name(array.element)},
                       {"shape", array.sizes},
                       {"bytes", array.count() * formats::size_of(array.element)},
                       {"file", std::filesystem::path(folder.files.at(name)).filename().string()}});
  result["tensors"] = tensors;
  return result;
}

std::string text_of(const Json& value) { return printable(value.get<std::string>()); }

std::string metadata_text(const Json& value) {
  if (value.is_object()) return format("%lld of %s", value["length"].get<long long>(), text_of(value["type"]).c_str());
  return value.is_string() ? text_of(value) : value.dump();
}

std::string shape_text(const Json& shape) {
  std::string text;
  for (const Json& size : shape) text += formats::joined(text.empty() ? "" : "x", size.get<std::int64_t>());
  return text;
}

}  // namespace

bool begins_with_gguf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string(magic, sizeof magic) == "GGUF";
}

bool is_language_model(const std::string& path) {
  const std::filesystem::path folder = path;
  std::error_code error;
  return begins_with_gguf(path) || std::filesystem::exists(folder / "tokenizer.json", error) ||
         std::filesystem::exists(folder / "tokenizer.model", error);
}

std::optional<Json> weights_json(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return folder_json(path);
  if (begins_with_gguf(path)) return gguf_json(path);
  return std::nullopt;
}

void print_weights(const Json& fields) {
  std::printf("%s: %s\n", text_of(fields["file"]).c_str(), text_of(fields["kind"]).c_str());
  if (fields.contains("model")) {
    const Json& model = fields["model"];
    std::string types;
    for (const auto& [type, bytes] : model["bytes_of_type"].items())
      types += (types.empty() ? "" : ", ") + format("%s %.1f MB", type.c_str(), bytes.get<double>() / 1e6);
    if (model["architecture"].is_string())
      std::printf("architecture %s, context %s, ", text_of(model["architecture"]).c_str(),
                  printable(model["context"].dump()).c_str());
    if (model.contains("parameters")) std::printf("%lld parameters, ", model["parameters"].get<long long>());
    std::printf("%.1f MB (%s)\n", model["bytes"].get<double>() / 1e6, types.c_str());
  }
  if (fields.contains("metadata"))
    for (const auto& [key, value] : fields["metadata"].items())
      std::printf("%s: %s\n", printable(key).c_str(), metadata_text(value).substr(0, 200).c_str());
  if (fields.contains("layers"))
    for (const Json& l : fields["layers"])
      std::printf("%-44s %-20s %lld bits, groups of %lld\n", text_of(l["name"]).c_str(), text_of(l["kind"]).c_str(),
                  l["bits"].get<long long>(), l["group_size"].get<long long>());
  if (fields.contains("not_read")) std::printf("%s\n", text_of(fields["not_read"]).c_str());
  for (const Json& t : fields["tensors"])
    std::printf("%-44s %-8s %-16s %11lld\n", text_of(t["name"]).c_str(), text_of(t["dtype"]).c_str(),
                shape_text(t["shape"]).c_str(), t["bytes"].get<long long>());
}

}  // namespace bie::cli
