// The tokenizer of a folder of Hugging Face.
#include <filesystem>
#include <system_error>
#include <utility>

#include "bie/formats/mapped_file.h"
#include "bie/text/tokenizer.h"
#include "text/json_fields.h"

namespace bie::text {
namespace {

using formats::joined;
using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kind = "tokenizer";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string contents(const std::string& path) {
  const formats::MappedFile file(kind, path);
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

/// A small file beside the tokenizer; null where it is not there.
json settings(const fs::path& path) {
  if (!is_there(path)) return nullptr;
  json value = formats::parse_json(contents(path.string()));
  if (!value.is_object()) formats::fail_file(kind, path.string(), "expected a JSON object, got something else");
  return value;
}

/// The file that holds the tokens.
fs::path file_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (const fs::path file = fs::path(path) / name; is_there(file)) return file;
  formats::fail_file("folder", path, "expected tokenizer.json or tokenizer.model, got neither");
}

/// The token that tokenizer_config.json names.
std::optional<std::int32_t> named_token(const Vocabulary& v, const json& config, const char* key) {
  const json& value = field(config, key);
  const json& name = value.is_object() ? field(value, "content") : value;
  if (!name.is_string()) return std::nullopt;
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    if (v.tokens[i] == name.get_ref<const std::string&>()) return static_cast<std::int32_t>(i);
  return std::nullopt;
}

/// A number of a token, or a list of them.
void add_ends(const json& value, const fs::path& path, std::vector<std::int32_t>* ends) {
  const auto add = [&](const json& id) {
    if (!formats::is_whole(id, 0, INT32_MAX))
      formats::fail_file(kind, path.string(), "\"eos_token_id\": expected numbers of tokens, got ", formats::shown(id));
    ends->push_back(id.get<std::int32_t>());
  };
  if (!value.is_array() && !value.is_null()) return add(value);
  for (const json& id : value) add(id);
}

void read_settings(const fs::path& folder, Vocabulary* v) {
  const json config = settings(folder / "tokenizer_config.json");
  for (const auto& [key, token] : {std::pair{"bos_token", &v->bos}, {"eos_token", &v->eos}, {"pad_token", &v->padding}})
    if (const auto found = named_token(*v, config, key)) *token = found;
  const fs::path generation = folder / "generation_config.json", model = folder / "config.json";
  add_ends(field(settings(generation), "eos_token_id"), generation, &v->ends);
  if (v->ends.empty()) add_ends(field(settings(model), "eos_token_id"), model, &v->ends);
  if (!v->eos && !v->ends.empty() && v->ends.front() < static_cast<std::int64_t>(v->tokens.size()))
    v->eos = v->ends.front();
}

}  // namespace

Vocabulary folder_vocabulary(const std::string& path) {
  const fs::path file = file_of(path);
  try {
    Vocabulary v = tokenizer_json_vocabulary(contents(file.string()));
    read_settings(file.parent_path(), &v);
    return v;
  } catch (const formats::Error& error) {
    const std::string sentence = error.what();
    if (sentence.rfind(joined(kind, " "), 0) == 0) throw;
    formats::fail_file(kind, file.string(), sentence);
  }
}

Tokenizer folder_tokenizer(const std::string& path) {
  Vocabulary vocabulary = folder_vocabulary(path);
  try {
    return Tokenizer(std::move(vocabulary));
  } catch (const formats::Error& error) {
    formats::fail_file(kind, path, error.what());
  }
}

}  // namespace bie::text
