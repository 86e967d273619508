#include "llm/folder/text_files.h"

#include <filesystem>
#include <system_error>
#include <variant>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "bie/text/vocabulary_files.h"
#include "formats/json_text.h"
#include "llm/folder/config_text.h"
#include "llm/folder/family.h"

namespace bie::llm::folder {
namespace {

namespace fs = std::filesystem;
using formats::joined;

/// Files of a tokenizer and of conversations, as Hugging Face's tools call them.
constexpr const char* copied[] = {"tokenizer.json",
                                  "tokenizer.model",
                                  "spiece.model",
                                  "tokenizer_config.json",
                                  "sentencepiece.bpe.model",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "chat_template.jinja",
                                  "generation_config.json"};

std::string contents(const fs::path& path) {
  const formats::MappedFile file("file", path.string());
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

/// The configuration of the text's part, without that of its codes.
std::string config_of_folder(const ModelFile& model, const std::string& dtype) {
  const nlohmann::json whole = formats::parse_json(contents(fs::path(model.path()) / "config.json"));
  nlohmann::json config = whole;
  if (const auto part = whole.find("text_config");
      part != whole.end() && part->is_object() && !whole.contains("hidden_size")) {
    config = *part;
    config["architectures"] = {std::string(model.family->class_name)};
    if (whole.contains("tie_word_embeddings")) config["tie_word_embeddings"] = whole["tie_word_embeddings"];
    config["model_type"] = std::string(model.family->model_type);
  }
  config.erase("quantization_config");
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.contains(key)) config[key] = dtype;
  return config.dump(2) + "\n";
}

/// Templates by name, the default one under "".
std::map<std::string, std::string> templates_of(const formats::GgufFile& file) {
  const std::string key = "tokenizer.chat_template";
  std::map<std::string, std::string> templates;
  for (const auto& [name, value] : file.metadata) {
    const auto* const text = std::get_if<std::string>(&value.value);
    if (text == nullptr || !name.starts_with(key)) continue;
    if (name == key) templates[""] = *text;
    if (name.starts_with(key + ".")) templates[name.substr(key.size() + 1)] = *text;
  }
  return templates;
}

}  // namespace

std::map<std::string, std::string> text_files(const ModelFile& model, const std::string& dtype) {
  if (!model.is_folder()) {
    const text::Vocabulary vocabulary = text::gguf_vocabulary(model.gguf);
    std::map<std::string, std::string> files;
    try {
      files = text::vocabulary_files(vocabulary, templates_of(model.gguf));
    } catch (const formats::Error& error) {
      model.fail(joined("no folder holds its tokenizer: ", error.what()));
    }
    files["config.json"] = config_text(model, dtype);
    return files;
  }
  std::map<std::string, std::string> files = {{"config.json", config_of_folder(model, dtype)}};
  for (const char* name : copied) {
    std::error_code error;
    if (const fs::path path = fs::path(model.path()) / name; fs::exists(path, error)) files[name] = contents(path);
  }
  return files;
}

}  // namespace bie::llm::folder
