// tokenizer.json of BPE by merges.
// Source: huggingface/tokenizers, the fields that its Deserialize wants.
#include "text/tokenizer_json_writer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_set>

#include "text/byte_characters.h"
#include "text/json_fields.h"
#include "text/json_file.h"
#include "text/json_lines.h"
#include "text/pattern.h"
#include "text/pre_tokenizer.h"
#include "text/sentence_pieces.h"
#include "text/split_rules.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using nlohmann::json;
using Kind = Vocabulary::Kind;
using Names = std::vector<std::string>;

/// The parts of a tokenizer.json that say how a text is cut and joined.
struct Parts {
  std::string normalizer = "null", pre_tokenizer, decoder;
  std::string unknown = "null";
  bool whole_first = false, byte_fallback = false, fuses_unknown = false;
};

/// A pattern of split_rules.h in the syntax of Oniguruma.
std::string oniguruma_pattern(const std::string& rule, std::string pattern) {
  pattern = replaced(pattern, "\\p{L&}", "[\\p{Ll}\\p{Lt}\\p{Lu}]");
  const std::string spaces(space_class);
  std::string result = replaced(pattern, joined("[^", spaces, "]"), "\\S");
  result = replaced(result, joined("[", spaces, "]"), "\\s");
  result = replaced(result, spaces, "\\s");
  if (pcre_pattern(result) != pattern)
    throw Error(joined("expected a rule whose patterns tokenizer.json can hold, got ", in_quotes(rule)));
  return result;
}

/// ByteLevel reads the names of added tokens as bytes, too. Those that are meant as text become its bytes before, where
/// their names are part of no other.
std::string byte_level_decoder(const Vocabulary& v, const Names& names, const std::string& bytes) {
  Lines steps;
  Names others = names;
  constexpr std::size_t most_steps = 60;
  std::size_t count = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string text;
    const std::string& name = names[i];
    if (v.kinds[i] != Kind::user_defined || !bytes_of_characters(name, &text) || text == name) continue;
    others[i].clear();
    const auto holds = [&](const std::string& other) { return other.find(name) != std::string::npos; };
    const bool is_part = std::any_of(others.begin(), others.end(), holds);
    others[i] = is_part ? name : characters_of_bytes(name);
    if (is_part || ++count > most_steps) continue;
    steps.add(R"({"type": "Replace", "pattern": {"String": )" + json_text(name) + R"(}, "content": )" +
              json_text(others[i]) + "}");
  }
  if (count == 0) return bytes;
  steps.add(bytes);
  return R"({"type": "Sequence", "decoders": )" + steps.list() + "}";
}

Parts byte_level_parts(const Vocabulary& v, const Names& names, const SplitRule& rule) {
  const std::string bytes =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})";
  Lines steps;
  for (const std::string& pattern : rule.patterns)
    steps.add(R"({"type": "Split", "pattern": {"Regex": )" + json_text(oniguruma_pattern(v.splitter, pattern)) +
              R"(}, "behavior": "Isolated", "invert": false})");
  steps.add(bytes);
  Parts parts;
  parts.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": )" + steps.list() + "}";
  parts.decoder = byte_level_decoder(v, names, bytes);
  parts.whole_first = rule.whole_first;
  return parts;
}

/// The parts that a description states.
Parts described_parts(const Vocabulary& v, const Names& names) {
  json description = read_tokenizer_json(v.description).rest;
  description["pre_tokenizer"]["invert"] = false;  // which tokenizers wants to be said
  const json& model = field(description, "model");
  Parts parts;
  parts.normalizer = description["normalizer"].dump();
  parts.pre_tokenizer = description["pre_tokenizer"].dump();
  parts.decoder = description["decoder"].dump();
  parts.byte_fallback = flag(model, "byte_fallback", false);
  parts.fuses_unknown = flag(model, "fuse_unk", false);
  if (v.unknown && !names[static_cast<std::size_t>(*v.unknown)].empty())
    parts.unknown = json_text(names[static_cast<std::size_t>(*v.unknown)]);
  return parts;
}

/// How a byte-level vocabulary writes a token so that it decodes to the same text. A name with a character that stands
/// for no byte stays where no text becomes it.
std::string byte_level_name(const std::string& token, Kind kind, const SplitRule& rule) {
  std::string bytes;
  const bool is_piece = kind == Kind::normal || kind == Kind::byte;
  const bool is_bytes = bytes_of_characters(token, &bytes), is_made = rule.whole_first || token.size() == 1;
  const bool stays = is_added(kind) || (is_piece && (is_bytes || !is_made));
  return stays ? token : characters_of_bytes(token);
}

/// Says of a token that is none of the model whether a text would become it where its name were in the vocabulary:
/// a character, or a whole piece where pieces that are tokens become these.
class Reach {
 public:
  explicit Reach(const SplitRule* rule) : is_byte_level_(rule != nullptr) {
    if (rule != nullptr && rule->whole_first) pre_tokenizer_ = pattern_pre_tokenizer(rule->patterns);
  }

  bool has(const std::string& token) const {
    if (token.empty() || !formats::is_utf8(token)) return true;
    if (!is_byte_level_) return character_bytes(token, 0) == static_cast<int>(token.size());
    if (token.size() == 1 || pre_tokenizer_ == nullptr) return token.size() == 1;
    std::size_t pieces = 0;
    pre_tokenizer_->split({token, true}, [&](Piece) { ++pieces; });
    return pieces == 1;
  }

 private:
  bool is_byte_level_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
};

std::string added_tokens(const Vocabulary& v, const Names& names) {
  Lines lines;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (is_added(v.kinds[i])) lines.add(added_token("\"id\": " + std::to_string(i) + ", ", names[i], v.kinds[i]));
  return lines.list();
}

/// What stands before and after a text; null where nothing does.
std::string post_processor(const Vocabulary& v, const Tokenizer& tokenizer) {
  if (tokenizer.before().empty() && tokenizer.after().empty()) return "null";
  Lines single, pair, special;
  std::unordered_set<std::int32_t> known;
  const auto add = [&](const std::string& part) {
    single.add(part);
    pair.add(part);
  };
  const auto add_tokens = [&](const std::vector<std::int32_t>& tokens) {
    for (const std::int32_t token : tokens) {
      const std::string name = json_text(valid_utf8(v.tokens[static_cast<std::size_t>(token)]));
      add(R"({"SpecialToken": {"id": )" + name + R"(, "type_id": 0}})");
      if (known.insert(token).second)
        special.add(name + R"(: {"id": )" + name + R"(, "ids": [)" + std::to_string(token) + R"(], "tokens": [)" +
                    name + "]}");
    }
  };
  add_tokens(tokenizer.before());
  add(R"({"Sequence": {"id": "A", "type_id": 0}})");
  pair.add(R"({"Sequence": {"id": "B", "type_id": 1}})");
  add_tokens(tokenizer.after());
  return R"({"type": "TemplateProcessing", "single": )" + single.list() + R"(, "pair": )" + pair.list() +
         R"(, "special_tokens": )" + special.object() + "}";
}

std::string vocabulary_text(const Names& names) {
  Lines lines;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty()) lines.add(json_text(names[i]) + ": " + std::to_string(i));
  return lines.object();
}

/// The rule of GGUF's byte-level BPE; none where a description says how a text is cut.
std::optional<SplitRule> rule_of(const Vocabulary& v) {
  return v.description.empty() ? split_rule(v.splitter) : std::nullopt;
}

/// Of merges that stand there twice GGUF's byte-level BPE takes the first, and tokenizer.json the last.
std::string merges_text(const Vocabulary& v, const SplitRule* rule) {
  Lines lines;
  std::unordered_set<std::string> known;
  const auto written = [&](const std::string& token) {
    return json_text(rule != nullptr ? byte_level_name(token, Kind::normal, *rule) : token);
  };
  for (const auto& [left, right] : v.merges) {
    const std::string line = "[" + written(left) + ", " + written(right) + "]";
    if (rule == nullptr || known.insert(line).second) lines.add(line);
  }
  return lines.list();
}

}  // namespace

std::vector<std::string> tokenizer_json_names(const Vocabulary& v) {
  const std::optional<SplitRule> found = rule_of(v);
  const SplitRule* const rule = found ? &*found : nullptr;
  Names names = v.tokens;
  const auto is_idle = [&](Kind kind) { return kind == Kind::unused || (rule != nullptr && kind == Kind::unknown); };
  std::unordered_set<std::string_view> known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (rule != nullptr) names[i] = byte_level_name(names[i], v.kinds[i], *rule);
    if (is_idle(v.kinds[i]) || names[i].empty()) continue;
    if (!formats::is_utf8(names[i]))
      throw Error(joined("token ", i, ": expected a name in UTF-8, got ", in_quotes(names[i])));
    if (!known.insert(names[i]).second)
      throw Error(joined("expected every token once, got ", in_quotes(names[i]), " twice"));
  }
  const Reach reach(rule);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (is_idle(v.kinds[i]) && (reach.has(v.tokens[i]) || !known.insert(names[i]).second)) names[i].clear();
  return names;
}

std::string tokenizer_json(const Vocabulary& v, const Tokenizer& tokenizer, const std::vector<std::string>& names) {
  const std::optional<SplitRule> rule = rule_of(v);
  const Parts parts = rule ? byte_level_parts(v, names, *rule) : described_parts(v, names);
  Lines model, file;
  model.add("type", "\"BPE\"");
  model.add("dropout", "null");
  model.add("unk_token", parts.unknown);
  model.add("continuing_subword_prefix", "null");
  model.add("end_of_word_suffix", "null");
  model.add("fuse_unk", truth(parts.fuses_unknown));
  model.add("byte_fallback", truth(parts.byte_fallback));
  model.add("ignore_merges", truth(parts.whole_first));
  model.add("vocab", vocabulary_text(names));
  model.add("merges", merges_text(v, rule ? &*rule : nullptr));
  file.add("version", "\"1.0\"");
  file.add("truncation", "null");
  file.add("padding", "null");
  file.add("added_tokens", added_tokens(v, names));
  file.add("normalizer", parts.normalizer);
  file.add("pre_tokenizer", parts.pre_tokenizer);
  file.add("post_processor", post_processor(v, tokenizer));
  file.add("decoder", parts.decoder);
  file.add("model", model.object());
  return file.object() + "\n";
}

}  // namespace bie::text
