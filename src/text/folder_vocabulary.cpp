// The tokenizer of a folder of Hugging Face.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "bie/formats/mapped_file.h"
#include "bie/text/tokenizer.h"
#include "text/json_fields.h"
#include "text/json_file.h"

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

/// Whether a sentence begins with the name of a file.
bool is_about_file(const std::string& sentence) { return sentence.rfind(joined(kind, " "), 0) == 0; }

/// A small file beside the tokenizer; null where it is not there.
json settings(const fs::path& path) {
  if (!is_there(path)) return nullptr;
  try {
    return read_tokenizer_json(contents(path.string())).rest;
  } catch (const formats::Error& error) {
    const std::string sentence = error.what();
    if (is_about_file(sentence)) throw;
    formats::fail_file(kind, path.string(), sentence);
  }
}

/// The file that holds the tokens.
fs::path file_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"})
    if (fs::path file = fs::path(path) / name; is_there(file)) return file;
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

/// What tokenizer_config.json adds to a .model: tokens, and which stand before and after a text. By itself a model of
/// BPE begins a text with BOS, and one of Unigram that has no BOS ends it with EOS.
void read_added_tokens(const json& config, Vocabulary* v) {
  const json& added = field(config, "added_tokens_decoder");
  std::vector<std::pair<std::size_t, const json*>> tokens;
  for (auto item = added.begin(); item != added.end(); ++item) {
    const std::string& id = item.key();
    const bool is_number = !id.empty() && id.size() < 9 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || !item.value().is_object())
      throw formats::Error(
          joined("\"added_tokens_decoder\": expected numbers of tokens, got ", formats::in_quotes(id)));
    tokens.emplace_back(std::stoul(id), &item.value());
  }
  std::sort(tokens.begin(), tokens.end());
  for (const auto& [at, token] : tokens) {
    const std::string name = string_field(*token, "content");
    const auto of_token = flag(*token, "special", false) ? Vocabulary::Kind::control : Vocabulary::Kind::user_defined;
    if (at > v->tokens.size())
      throw formats::Error(joined("\"added_tokens_decoder\": expected token ", v->tokens.size(), ", got ", at));
    if (at == v->tokens.size()) {
      v->tokens.push_back(name);
      v->kinds.push_back(of_token);
      v->scores.push_back(0);
    } else if (v->tokens[at] == name &&
               (v->kinds[at] == Vocabulary::Kind::normal || v->kinds[at] == Vocabulary::Kind::unknown)) {
      v->kinds[at] = of_token;  // found in texts, also that of what is unknown
    }
  }
}

void read_model_settings(const json& config, Vocabulary* v) {
  const bool is_unigram = v->scheme == Vocabulary::Scheme::unigram;
  v->adds_bos = flag(config, "add_bos_token", !is_unigram);
  v->adds_eos = flag(config, "add_eos_token", is_unigram && !v->bos);
  if (field(config, "added_tokens_decoder").is_object()) read_added_tokens(config, v);
}

void read_settings(const fs::path& folder, bool is_model, Vocabulary* v) {
  const json config = settings(folder / "tokenizer_config.json");
  if (is_model) read_model_settings(config, v);
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
    const std::string text = contents(file.string());
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_json = first != std::string::npos && text[first] == '{';
    Vocabulary v = is_json ? tokenizer_json_vocabulary(text) : sentencepiece_vocabulary(text);
    read_settings(file.parent_path(), !is_json, &v);
    return v;
  } catch (const formats::Error& error) {
    const std::string sentence = error.what();
    if (is_about_file(sentence)) throw;
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
