// The files of a tokenizer, and the settings beside it.
#include "bie/text/vocabulary_files.h"

#include <algorithm>

#include "bie/text/tokenizer.h"
#include "text/json_fields.h"
#include "text/json_lines.h"
#include "text/sentencepiece_writer.h"
#include "text/tokenizer_json_writer.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using Kind = Vocabulary::Kind;
using Names = std::vector<std::string>;

std::string templates_text(const std::map<std::string, std::string>& templates) {
  for (const auto& [name, text] : templates)
    if (!formats::is_utf8(name) || !formats::is_utf8(text))
      throw Error(joined("chat template ", in_quotes(name), ": expected UTF-8, got other bytes"));
  if (templates.size() == 1 && templates.begin()->first.empty()) return json_text(templates.begin()->second);
  Lines list;
  for (const auto& [name, text] : templates)
    list.add(R"({"name": )" + json_text(name.empty() ? "default" : name) + R"(, "template": )" + json_text(text) + "}");
  return list.list();
}

/// Libraries look in texts for the tokens that are called special, so padding and unknown tokens are left out where
/// texts do not name them. A .model needs the name of its unknown token.
void add_special_tokens(const Vocabulary& v, const Names& names, Lines* config) {
  const bool is_model = v.scheme == Vocabulary::Scheme::pieces;
  const auto add = [&](const char* key, const std::optional<std::int32_t>& token, bool is_wanted) {
    if (!token) return;
    const auto at = static_cast<std::size_t>(*token);
    if (!names[at].empty() && (is_wanted || is_added(v.kinds[at]))) config->add(key, json_text(names[at]));
  };
  add("bos_token", v.bos, true);
  add("eos_token", v.eos, true);
  add("pad_token", v.padding, false);
  add("unk_token", is_model ? static_cast<std::int32_t>(unknown_piece(v)) : v.unknown, is_model);
}

/// What a library that reads a .model is to know of it.
void add_model_settings(const Vocabulary& v, const Names& names, Lines* config) {
  config->add("add_prefix_space", truth(v.adds_space));
  config->add("legacy", "true");  // a space stands behind control tokens, too
  Lines added;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (is_added(v.kinds[i])) added.add(json_text(std::to_string(i)) + ": " + added_token("", names[i], v.kinds[i]));
  config->add("added_tokens_decoder", added.object());
}

std::string tokenizer_config(const Vocabulary& v, const Tokenizer& tokenizer, const Names& names,
                             const std::map<std::string, std::string>& templates) {
  const bool is_model = v.scheme == Vocabulary::Scheme::pieces;
  Lines config;
  config.add("tokenizer_class", is_model ? "\"LlamaTokenizer\"" : "\"PreTrainedTokenizerFast\"");
  config.add("add_bos_token", truth(!tokenizer.before().empty()));
  config.add("add_eos_token", truth(!tokenizer.after().empty()));
  config.add("clean_up_tokenization_spaces", "false");
  add_special_tokens(v, names, &config);
  if (is_model) add_model_settings(v, names, &config);
  if (!templates.empty()) config.add("chat_template", templates_text(templates));
  return config.object() + "\n";
}

std::string generation_config(const Vocabulary& v) {
  std::vector<std::int32_t> ends = v.ends;
  if (v.eot) ends.insert(ends.begin(), *v.eot);
  if (v.eos) ends.insert(ends.begin(), *v.eos);
  std::string text;
  for (auto end = ends.begin(); end != ends.end(); ++end)
    if (std::find(ends.begin(), end, *end) == end) text += (text.empty() ? "" : ", ") + std::to_string(*end);
  Lines config;
  if (!text.empty()) config.add("eos_token_id", text.find(',') == std::string::npos ? text : "[" + text + "]");
  if (v.bos) config.add("bos_token_id", std::to_string(*v.bos));
  if (v.padding) config.add("pad_token_id", std::to_string(*v.padding));
  return config.object() + "\n";
}

void check_scheme(const Vocabulary& v) {
  const bool is_folder = v.description.find("\"added_tokens\"") != std::string::npos;
  const std::string scheme = is_folder ? "tokenizer.json" : gguf_scheme(v);
  if (scheme != "gpt2" && scheme != "gemma4" && scheme != "llama")
    throw Error(joined("expected a tokenizer of BPE, \"gpt2\", \"gemma4\" or \"llama\", got ", in_quotes(scheme)));
}

}  // namespace

std::map<std::string, std::string> vocabulary_files(const Vocabulary& v,
                                                    const std::map<std::string, std::string>& chat_templates) {
  check_scheme(v);
  const Tokenizer tokenizer(v);
  std::map<std::string, std::string> files;
  Names names;
  if (v.scheme == Vocabulary::Scheme::pieces) {
    names = sentencepiece_names(v);
    files["tokenizer.model"] = sentencepiece_model(v, names);
  } else {
    names = tokenizer_json_names(v);
    files["tokenizer.json"] = tokenizer_json(v, tokenizer, names);
  }
  files["tokenizer_config.json"] = tokenizer_config(v, tokenizer, names, chat_templates);
  files["generation_config.json"] = generation_config(v);
  return files;
}

}  // namespace bie::text
