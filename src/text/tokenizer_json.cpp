// The vocabulary of a tokenizer.json of Hugging Face's tokenizers.
#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "bie/text/vocabulary.h"
#include "text/json_fields.h"
#include "text/json_file.h"
#include "text/pre_tokenizer.h"
#include "text/sentence_pieces.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using nlohmann::json;
using Kind = Vocabulary::Kind;

/// So many numbers of tokens may have no name.
constexpr std::size_t most_left_out = 100'000;

/// Old files do not say it.
std::string type_of_model(const TokenizerJson& file, const json& model) {
  if (std::string type = type_of(model); !type.empty()) return type;
  if (!file.scores.empty()) return "Unigram";
  return field(model, "max_input_chars_per_word").is_null() ? "BPE" : "WordPiece";
}

Vocabulary::Scheme scheme_of(const std::string& type) {
  if (type == "BPE") return Vocabulary::Scheme::bytes;
  if (type == "Unigram") return Vocabulary::Scheme::unigram;
  if (type == "WordPiece") return Vocabulary::Scheme::words;
  throw Error(joined("\"model\": expected BPE, Unigram or WordPiece, got ", in_quotes(type)));
}

void put(Vocabulary* v, std::size_t count, const std::string& name, const json& id) {
  if (!formats::is_whole(id, 0, static_cast<std::int64_t>(count + most_left_out) - 1))
    throw Error(joined("token ", in_quotes(name), ": expected a number below ", count + most_left_out, ", got ",
                       formats::shown(id)));
  const auto at = id.get<std::size_t>();
  if (v->tokens.size() <= at) {
    v->tokens.resize(at + 1);
    v->kinds.resize(at + 1, Kind::unused);
  }
  if (!v->tokens[at].empty() && v->tokens[at] != name)
    throw Error(joined("token ", at, ": expected one name, got ", in_quotes(v->tokens[at]), " and ", in_quotes(name)));
  v->tokens[at] = name;
}

void read_tokens(TokenizerJson* file, Vocabulary* v) {
  const json& added = field(file->rest, "added_tokens");
  if (!added.is_null() && !added.is_array()) refuse_field(file->rest, "added_tokens", "a list");
  const std::size_t count = file->ids.size() + file->scores.size() + added.size();
  for (const auto& [name, id] : file->ids) {
    put(v, count, name, id);
    v->kinds[static_cast<std::size_t>(id)] = Kind::normal;
  }
  for (const auto& [name, score] : file->scores) {
    v->tokens.push_back(name);
    v->kinds.push_back(Kind::normal);
    v->scores.push_back(score);
  }
  for (json& token : file->rest["added_tokens"]) {
    const std::string name = string_field(token, "content");
    if (name.empty()) throw Error("\"added_tokens\": expected a content, got none");
    put(v, count, name, field(token, "id"));
    const auto at = field(token, "id").get<std::size_t>();
    token["in_model"] = v->kinds[at] != Kind::unused;
    v->kinds[at] = flag(token, "special", false) ? Kind::control : Kind::user_defined;
  }
  if (v->tokens.empty()) throw Error("expected tokens, got none");
}

std::optional<std::int32_t> token_of(const Vocabulary& v, const std::string& name) {
  const auto found = std::find(v.tokens.begin(), v.tokens.end(), name);
  if (name.empty() || found == v.tokens.end()) return std::nullopt;
  return static_cast<std::int32_t>(found - v.tokens.begin());
}

std::int32_t id_in(const Vocabulary& v, const json& id) {
  if (!formats::is_whole(id, 0, static_cast<std::int64_t>(v.tokens.size()) - 1))
    throw Error(
        joined("\"post_processor\": expected a token from 0 to ", v.tokens.size() - 1, ", got ", formats::shown(id)));
  return id.get<std::int32_t>();
}

void read_template(const json& step, Vocabulary* v) {
  const json& single = field(step, "single");
  if (!single.is_array()) refuse_field(step, "single", "a list");
  bool is_behind = false;
  for (const json& part : single) {
    if (!field(part, "Sequence").is_null()) {
      if (is_behind) throw Error("\"post_processor\": expected a template with a text, got one with two");
      is_behind = true;
      continue;
    }
    const std::string name = string_field(field(part, "SpecialToken"), "id");
    const json& ids = field(field(field(step, "special_tokens"), name.c_str()), "ids");
    if (!ids.is_array())
      throw Error(joined("\"post_processor\": expected the ids of special token ", in_quotes(name), ", got none"));
    for (const json& id : ids) (is_behind ? v->after : v->before).push_back(id_in(*v, id));
  }
  if (!is_behind) throw Error("\"post_processor\": expected a template with a text, got one without");
}

void read_post_processor(const json& step, Vocabulary* v) {
  if (step.is_null()) return;
  const std::string type = type_of(step);
  if (type == "Sequence") {
    const json& steps = field(step, "processors");
    if (!steps.is_array()) refuse_field(step, "processors", "a list");
    for (const json& part : steps) read_post_processor(part, v);
  } else if (type == "TemplateProcessing") {
    read_template(step, v);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto token = [&](const char* key) {
      const json& pair = field(step, key);
      if (!pair.is_array() || pair.size() != 2) refuse_field(step, key, "a token and its number");
      return id_in(*v, pair[1]);
    };
    v->before.push_back(token("cls"));
    v->after.push_back(token("sep"));
  } else if (type != "ByteLevel") {  // which moves offsets alone
    throw Error(
        joined("\"post_processor\": expected BertProcessing, ByteLevel, RobertaProcessing, Sequence or "
               "TemplateProcessing, got ",
               in_quotes(type)));
  }
}

void refuse_unread(const json& model) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json& value = field(model, key);
    if (!value.is_null() && value != "" && type_of(model) != "WordPiece")
      throw Error(joined("\"model\": expected no ", key, ", got ", formats::shown(value)));
  }
  const json& dropout = field(model, "dropout");
  if (!dropout.is_null() && dropout != 0)
    throw Error(joined("\"model\": expected no dropout, got ", formats::shown(dropout)));
}

/// The unknown token: a number in Unigram, a name elsewhere.
std::optional<std::int32_t> unknown_of(const Vocabulary& v, const json& model) {
  if (v.scheme == Vocabulary::Scheme::unigram) {
    const json& id = field(model, "unk_id");
    if (id.is_null()) return std::nullopt;
    if (!formats::is_whole(id, 0, static_cast<std::int64_t>(v.tokens.size()) - 1))
      throw Error(joined("\"unk_id\": expected a token from 0 to ", v.tokens.size() - 1, ", got ", formats::shown(id)));
    return id.get<std::int32_t>();
  }
  return field(model, "unk_token").is_null() ? std::nullopt : token_of(v, string_field(model, "unk_token"));
}

}  // namespace

Vocabulary tokenizer_json_vocabulary(std::string_view text) {
  TokenizerJson file = read_tokenizer_json(text);
  const json& model = field(file.rest, "model");
  if (!model.is_object()) refuse_field(file.rest, "model", "an object");
  Vocabulary v;
  v.scheme = scheme_of(type_of_model(file, model));
  if (v.scheme == Vocabulary::Scheme::unigram ? !file.ids.empty() : !file.scores.empty())
    throw Error("\"vocab\": expected scores of tokens in a Unigram model and numbers in any other, got the reverse");
  refuse_unread(model);
  read_tokens(&file, &v);
  v.merges = std::move(file.merges);
  v.unknown = unknown_of(v, model);
  read_post_processor(field(file.rest, "post_processor"), &v);
  v.adds_bos = v.adds_eos = false;  // before and after say it
  json parts;
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder", "added_tokens"}) parts[key] = field(file.rest, key);
  if (parts["added_tokens"].is_null()) parts["added_tokens"] = json::array();
  parts["model"] = model;
  parts["model"]["type"] = type_of_model(file, model);
  v.description = parts.dump();
  return v;
}

std::string gguf_scheme(const Vocabulary& v) {
  if (!v.description.empty()) {
    const json description = read_tokenizer_json(v.description).rest;
    if (field(description, "added_tokens").is_null())  // what GGUF's own vocabularies of these schemes come with
      return v.scheme == Vocabulary::Scheme::words ? "bert" : "gemma4";
    bool is_byte_level = false;
    json_pre_tokenizer(field(description, "pre_tokenizer"), &is_byte_level);
    return is_byte_level && v.scheme == Vocabulary::Scheme::bytes ? "gpt2" : "";
  }
  switch (v.scheme) {
    case Vocabulary::Scheme::bytes: return "gpt2";
    case Vocabulary::Scheme::pieces: return "llama";
    case Vocabulary::Scheme::unigram: return "t5";
    case Vocabulary::Scheme::words: return "bert";
  }
  return "";
}

}  // namespace bie::text
