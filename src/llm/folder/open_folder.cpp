#include "llm/folder/open_folder.h"

#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "formats/json_text.h"
#include "llm/folder/family.h"
#include "llm/folder/settings.h"
#include "weights/elements.h"

namespace bie::llm::folder {
namespace {

using formats::Array;
using formats::Element;
using formats::in_quotes;
using formats::joined;
namespace fs = std::filesystem;

constexpr std::int64_t most_template_bytes = 100'000'000;

const formats::GgufType* type_of(Element element) {
  switch (element) {
    case Element::f16: return formats::gguf_type("F16");
    case Element::bf16: return formats::gguf_type("BF16");
    case Element::f32: return formats::gguf_type("F32");
    default: return nullptr;
  }
}

/// The bytes of a dense array, as a view.
std::shared_ptr<const formats::Bytes> bytes_of(const Array& array) {
  const std::int64_t size = array.count() * formats::size_of(array.element);
  if (array.offset == 0 && array.bytes->size == size) return array.bytes;
  auto view = std::make_shared<formats::Bytes>(*array.bytes);
  view->data += array.offset * formats::size_of(array.element);
  view->size = size;
  view->owner = std::const_pointer_cast<formats::Bytes>(array.bytes);
  return view;
}

formats::GgufTensor owned_floats(std::string name, const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes(4 * values.size());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const auto count = static_cast<std::int64_t>(values.size());
  return {std::move(name),
          {count},
          formats::gguf_type("F32"),
          formats::array_of(Element::f32, {count}, std::move(bytes)).bytes};
}

/// 1 + w in float32: Gemma's norms as GGUF files have them.
formats::GgufTensor with_one(std::string name, const Array& array) {
  std::vector<float> values = weights::floats_of(array);
  for (float& value : values) value = 1 + value;
  return owned_floats(std::move(name), values);
}

bool is_norm(std::string_view name) { return name.find("norm") != std::string_view::npos; }

/// Tables that are computed from the configuration, which old files carry.
bool is_derived(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".self_attn.bias") ||
         name.ends_with(".self_attn.masked_bias");
}

std::string text_of(const fs::path& path) {
  const formats::MappedFile file("file", path.string());
  if (file.size() > most_template_bytes)
    formats::fail_file("file", path.string(), "has ", file.size(), " bytes, the limit is ", most_template_bytes);
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

void put_template(const std::string& key, const std::string& text, ModelFile* model) {
  model->gguf.metadata[key] = {formats::GgufValueType::string, text};
}

/// `chat_template.jinja`, else the entry of tokenizer_config.json: one text, or a list of them with names.
void read_chat_template(const fs::path& folder, ModelFile* model) {
  constexpr const char* key = "tokenizer.chat_template";
  std::error_code error;
  if (const fs::path file = folder / "chat_template.jinja"; fs::exists(file, error)) {
    put_template(key, text_of(file), model);
    return;
  }
  const fs::path path = folder / "tokenizer_config.json";
  if (!fs::exists(path, error)) return;
  const nlohmann::json json = formats::parse_json(text_of(path));
  if (!json.is_object()) formats::fail_file("configuration", path.string(), "expected an object of JSON, got none");
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return;
  if (found->is_string()) {
    put_template(key, found->get<std::string>(), model);
    return;
  }
  bool fits = found->is_array();
  if (fits)
    for (const nlohmann::json& entry : *found) {
      fits = fits && entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
             entry.contains("template") && entry["template"].is_string();
      if (!fits) break;
      const std::string name = entry["name"].get<std::string>();
      put_template(name == "default" ? key : joined(key, ".", name), entry["template"].get<std::string>(), model);
    }
  if (!fits)
    formats::fail_file("configuration", path.string(), "\"chat_template\": expected a text or a list of names and ",
                       "templates, got ", formats::shown(*found));
}

/// Puts the tensors of plain numbers under GGUF's names; those that the family has not keep their own.
void put_tensors(const std::map<std::string, Array>& arrays, const Settings& settings, ModelFile* model) {
  for (const auto& [name, array] : arrays) {
    if (is_derived(name) || sees_pictures(*model->family, name)) continue;
    const std::string of_text = text_name(*model->family, name);
    const std::string ours = gguf_name(*model->family, of_text).value_or(of_text);
    if (ours == "output.weight" && settings.is_tied) continue;
    const formats::GgufType* const type = type_of(array.element);
    if (type == nullptr)
      model->fail(joined("tensor ", in_quotes(name), ": expected float32, float16 or bfloat16, got ",
                         formats::name(array.element)));
    if (model->family->has_end_norms && is_norm(ours))
      model->gguf.tensors.push_back(with_one(ours, array));
    else
      model->gguf.tensors.push_back({ours, array.sizes, type, bytes_of(array)});
  }
}

/// GGUF's name of a layer, without ".weight".
std::string stem_of(const ModelFile& model, const std::string& name) {
  const std::string of_text = text_name(*model.family, name + ".weight");
  const std::string ours = gguf_name(*model.family, of_text).value_or(of_text);
  return ours.substr(0, ours.rfind('.'));
}

bool is_projection(const std::string& name) { return name.ends_with("_proj.weight"); }

}  // namespace

ModelFile open_folder(const std::string& path) {
  ModelFile model;
  model.kind = "folder";
  model.gguf.path = path;
  const formats::WeightsFolder folder = formats::load_weights_folder(path);
  const auto config = folder.configs.find("config.json");
  if (config == folder.configs.end()) model.fail("expected the file config.json beside the weights, got none");
  const Settings settings = read_settings((fs::path(path) / "config.json").string(), config->second);
  model.family = settings.family;
  model.gguf.metadata = settings.metadata;
  if (std::optional<formats::TernaryModel> found = formats::ternary_layers(folder, is_projection)) {
    for (auto& [name, layer] : found->layers) model.ternary.emplace(stem_of(model, name), std::move(layer));
    put_tensors(found->rest, settings, &model);
  } else {
    formats::CodedModel coded = formats::coded_layers(folder);
    for (auto& [name, layer] : coded.layers) model.codes.emplace(stem_of(model, name), std::move(layer));
    put_tensors(coded.rest, settings, &model);
  }
  if (settings.is_tied) model.codes.erase("output");
  if (!settings.divisors.empty()) model.gguf.tensors.push_back(owned_floats("rope_freqs.weight", settings.divisors));
  if (!settings.is_tied && model.is_tied())
    model.fail(joined("the tensor ", in_quotes(model.called("output.weight")),
                      " is missing, and \"tie_word_embeddings\" is false"));
  read_chat_template(path, &model);
  return model;
}

}  // namespace bie::llm::folder
