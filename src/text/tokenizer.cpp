#include "bie/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/byte_characters.h"
#include "text/decoder.h"
#include "text/json_fields.h"
#include "text/json_file.h"
#include "text/merges.h"
#include "text/names.h"
#include "text/normalizer.h"
#include "text/piece_encoder.h"
#include "text/pre_tokenizer.h"
#include "text/sentence_normalizer.h"
#include "text/sentence_pieces.h"
#include "text/split_rules.h"
#include "text/unigram.h"
#include "text/utf8.h"
#include "text/word_pieces.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using nlohmann::json;
using Kind = Vocabulary::Kind;
using Scheme = Vocabulary::Scheme;

/// Calls take(part, is_text) for the runs of characters and of bytes that are none, in the order of the text.
template <class Take>
void for_each_run(std::string_view text, const Take& take) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    const bool is_text = character_bytes(text, at) > 0;
    while (end < text.size()) {
      const int length = character_bytes(text, end);
      if ((length > 0) != is_text) break;
      end += static_cast<std::size_t>(length > 0 ? length : 1);
    }
    take(text.substr(at, end - at), is_text);
    at = end;
  }
}

}  // namespace

/// A text is cut at names of tokens; what lies between is normalised, cut at names that are normalised themselves, then
/// into pieces, each of which becomes tokens.
struct Tokenizer::Impl {
  std::vector<std::string> bytes;  // per token
  std::vector<std::string> names;  // per token; none of byte-level ones, whose encoder reads bytes or texts
  std::vector<std::string> texts;  // of byte-level tokens by a description, to be merged
  std::vector<Kind> kinds;
  Names raw, of_normalized;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<PieceEncoder> encoder;
  bool adds_space = false;
  std::optional<std::int32_t> bos, eos, eot;
  std::vector<std::int32_t> ends, before, after;

  explicit Impl(Vocabulary v);
  void check(const Vocabulary& v) const;
  void read_description(Vocabulary v);
  void read_model(const Vocabulary& v, const json& model, bool is_byte_level);
  void read_added_tokens(const json& added, Vocabulary* v);
  void read_bytes(const Vocabulary& v);
  void read_pieces(const Vocabulary& v);
  void add_name(std::size_t token, Names* to);
  void add_pieces(std::string_view part, bool is_first, std::vector<std::int32_t>* tokens) const;
  void add_part(std::string_view part, bool is_first, const SpecialParts& special, std::size_t begin,
                std::vector<std::int32_t>* tokens) const;
};

Tokenizer::Impl::Impl(Vocabulary v) {
  names = std::move(v.tokens);
  kinds = v.kinds;
  check(v);
  bos = v.bos;
  eos = v.eos;
  eot = v.eot;
  ends = std::move(v.ends);
  before = std::move(v.before);
  after = std::move(v.after);
  bytes.reserve(names.size());
  if (v.description.empty() && v.scheme == Scheme::words)
    throw Error("expected a description of how a text becomes words, got none");
  if (!v.description.empty())
    read_description(std::move(v));
  else
    v.scheme == Scheme::bytes ? read_bytes(v) : read_pieces(v);
}

void Tokenizer::Impl::check(const Vocabulary& v) const {
  const auto in_range = [&](std::int32_t token) {
    if (token < 0 || static_cast<std::size_t>(token) >= names.size())
      throw Error(
          joined("expected special tokens from 0 to ", static_cast<std::int64_t>(names.size()) - 1, ", got ", token));
  };
  if (kinds.size() != names.size())
    throw Error(joined("expected ", names.size(), " kinds of tokens, got ", kinds.size()));
  for (const auto& token : {v.bos, v.eos, v.eot, v.unknown, v.padding})
    if (token) in_range(*token);
  for (const auto* list : {&v.before, &v.after})
    for (const std::int32_t token : *list) in_range(token);
}

/// Control and user-defined tokens are found by their names in texts; other tokens have none.
void Tokenizer::Impl::add_name(std::size_t token, Names* to) {
  if (kinds[token] != Kind::control && kinds[token] != Kind::user_defined) return;
  to->add(names[token], {static_cast<std::int32_t>(token), kinds[token] == Kind::control, false, false, false});
}

void Tokenizer::Impl::read_description(Vocabulary v) {
  const json description = read_tokenizer_json(v.description).rest;
  normalizer = json_normalizer(field(description, "normalizer"));
  bool is_byte_level = false;
  pre_tokenizer = json_pre_tokenizer(field(description, "pre_tokenizer"), &is_byte_level);
  const Decoder decoder(field(description, "decoder"));
  adds_space = decoder.strips_space();
  for (std::size_t i = 0; i < names.size(); ++i)
    bytes.push_back(kinds[i] == Kind::control ? names[i] : decoder.bytes(names[i]));
  if (!field(description, "added_tokens").is_null())
    read_added_tokens(field(description, "added_tokens"), &v);
  else
    for (std::size_t i = 0; i < names.size(); ++i) add_name(i, &raw);
  read_model(v, field(description, "model"), is_byte_level);
}

void Tokenizer::Impl::read_model(const Vocabulary& v, const json& model, bool is_byte_level) {
  if (v.scheme == Scheme::unigram) {
    encoder = std::make_unique<Unigram>(
        names, v.kinds, v.scores,
        UnigramOptions{/*is_sentencepiece=*/false, flag(model, "byte_fallback", false), v.unknown});
    return;
  }
  if (v.scheme == Scheme::words) {
    WordPieceOptions options;
    options.unknown = v.unknown;
    if (field(model, "first_prefix").is_string()) options.first_prefix = string_field(model, "first_prefix");
    if (!field(model, "continuing_subword_prefix").is_null())
      options.later_prefix = string_field(model, "continuing_subword_prefix");
    if (const json& longest = field(model, "max_input_chars_per_word"); !longest.is_null()) {
      if (!formats::is_whole(longest, 0, INT32_MAX))
        refuse_field(model, "max_input_chars_per_word", "a number from 0 on");
      options.longest_word = longest.get<std::size_t>();
    }
    encoder = std::make_unique<WordPieces>(names, v.kinds, options);
    return;
  }
  if (v.scheme != Scheme::bytes) throw Error("\"model\": expected BPE by merges, got another scheme");
  MergeOptions options;
  options.of_bytes = is_byte_level;
  options.whole_first = flag(model, "ignore_merges", false);
  options.byte_fallback = flag(model, "byte_fallback", false);
  options.fuses_unknown = flag(model, "fuse_unk", false);
  options.last_counts = true;
  options.unknown = v.unknown;
  if (is_byte_level) {
    texts = names;
    for (std::string& text : texts)
      if (std::string of_text; bytes_of_characters(text, &of_text)) text = of_text;
  }
  encoder = std::make_unique<Merges>(is_byte_level ? texts : names, v, names, options);
  if (is_byte_level) names = {};
}

void Tokenizer::Impl::read_added_tokens(const json& added, Vocabulary* v) {
  for (const json& token : added) {
    const json& id = field(token, "id");
    if (!formats::is_whole(id, 0, static_cast<std::int64_t>(names.size()) - 1))
      throw Error(
          joined("\"added_tokens\": expected a token from 0 to ", names.size() - 1, ", got ", formats::shown(id)));
    Name name;
    name.token = id.get<std::int32_t>();
    name.is_control = kinds[id.get<std::size_t>()] == Kind::control;
    name.is_word = flag(token, "single_word", false);
    name.strips_left = flag(token, "lstrip", false);
    name.strips_right = flag(token, "rstrip", false);
    if (!flag(token, "in_model", true)) v->kinds[id.get<std::size_t>()] = Kind::unused;  // no piece of the model
    std::string content = string_field(token, "content");
    const bool is_normalized = flag(token, "normalized", !name.is_control);
    bool is_first = true;
    if (is_normalized && normalizer != nullptr) content = normalizer->normalized(content, &is_first);
    if (!content.empty()) (is_normalized ? of_normalized : raw).add(content, name);
  }
}

void Tokenizer::Impl::read_pieces(const Vocabulary& v) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    bytes.push_back(kinds[i] == Kind::byte ? std::string(1, SentencePieces::byte_of(names[i])) : with_spaces(names[i]));
    if (kinds[i] == Kind::control) add_name(i, &raw);
    if (kinds[i] == Kind::user_defined && v.scheme == Scheme::pieces)
      of_normalized.add(with_marks(names[i]), {static_cast<std::int32_t>(i), false, false, false, false});
  }
  if (v.scheme == Scheme::pieces) {
    encoder = std::make_unique<SentencePieces>(names, kinds, v.scores);
  } else {
    const auto unknown = std::find(kinds.begin(), kinds.end(), Kind::unknown);
    UnigramOptions options;
    options.byte_fallback = std::find(kinds.begin(), kinds.end(), Kind::byte) != kinds.end();
    options.unknown = v.unknown;
    if (!options.unknown && unknown != kinds.end())
      options.unknown = static_cast<std::int32_t>(unknown - kinds.begin());
    encoder = std::make_unique<Unigram>(names, kinds, v.scores, options);
  }
  normalizer = std::make_unique<SentenceNormalizer>(v, names);
  adds_space = v.adds_space;
  if (v.adds_bos.value_or(v.scheme == Scheme::pieces) && bos) before.push_back(*bos);
  if (v.adds_eos.value_or(false) && eos) after.push_back(*eos);
}

void Tokenizer::Impl::read_bytes(const Vocabulary& v) {
  const std::optional<SplitRule> rule = split_rule(v.splitter);
  if (!rule)
    throw Error(joined("expected a tokenizer that splits text as one of ", split_rule_names(), ", got ",
                       in_quotes(v.splitter)));
  pre_tokenizer = pattern_pre_tokenizer(rule->patterns);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool is_normal = kinds[i] == Kind::normal || kinds[i] == Kind::byte;
    std::string of_name;
    bytes.push_back(is_normal && bytes_of_characters(names[i], &of_name) ? of_name : names[i]);
    add_name(i, &raw);
  }
  MergeOptions options;
  options.whole_first = rule->whole_first;
  encoder = std::make_unique<Merges>(bytes, v, names, options);
  names = {};
  if (v.adds_bos.value_or(rule->adds_bos) && bos) before.push_back(*bos);
  if (v.adds_eos.value_or(false) && eos) after.push_back(*eos);
}

void Tokenizer::Impl::add_pieces(std::string_view part, bool is_first, std::vector<std::int32_t>* tokens) const {
  if (part.empty()) return;
  if (pre_tokenizer == nullptr) return encoder->encode(part, tokens);
  const auto take = [&](Piece piece) { encoder->encode(piece.text, tokens); };
  const char* const begin = part.data();
  for_each_run(part, [&](std::string_view run, bool is_text) {
    const Piece piece{run, is_first && run.data() == begin};
    is_text ? pre_tokenizer->split(piece, take) : take(piece);
  });
}

/// What lies between names; `begin` is where it does so in the whole text.
void Tokenizer::Impl::add_part(std::string_view part, bool is_first, const SpecialParts& special, std::size_t begin,
                               std::vector<std::int32_t>* tokens) const {
  if (part.empty()) return;
  // A control token whose name is normalised is found where all of the part is special.
  const bool is_special = !of_normalized.empty() && special.left(begin) >= part.size();
  std::string of_part;
  if (normalizer != nullptr) {
    of_part = normalizer->normalized(part, &is_first);
    part = of_part;
  }
  std::size_t from = 0;
  for (const Names::Match& match :
       of_normalized.find(part, [&](std::size_t at) { return is_special ? part.size() - at : 0; })) {
    if (from < match.begin) add_pieces(part.substr(from, match.begin - from), is_first && from == 0, tokens);
    tokens->push_back(match.name->token);
    from = match.end;
  }
  if (from < part.size()) add_pieces(part.substr(from), is_first && from == 0, tokens);
}

Tokenizer::Tokenizer(Vocabulary vocabulary) : impl_(std::make_unique<const Impl>(std::move(vocabulary))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  return encode({{text, special}});
}

std::vector<std::int32_t> Tokenizer::encode(const std::vector<TextPart>& parts) const {
  std::string text;
  SpecialParts special;
  for (const TextPart& part : parts) {
    text += part.text;
    special.add(part.text.size(), part.special);
  }
  const std::string_view all = text;
  std::vector<std::int32_t> tokens;
  std::size_t from = 0;
  for (const Names::Match& match : impl_->raw.find(all, [&](std::size_t at) { return special.left(at); })) {
    if (from < match.begin) impl_->add_part(all.substr(from, match.begin - from), from == 0, special, from, &tokens);
    tokens.push_back(match.name->token);
    from = match.end;
  }
  if (from < all.size()) impl_->add_part(all.substr(from), from == 0, special, from, &tokens);
  return tokens;
}

std::vector<std::int32_t> Tokenizer::opened(std::string_view text, bool special) const {
  std::vector<std::int32_t> tokens = before();
  const std::vector<std::int32_t> of_text = encode(text, special);
  tokens.insert(tokens.end(), of_text.begin(), of_text.end());
  return tokens;
}

std::string_view Tokenizer::bytes(std::int32_t token, bool special) const {
  if (token < 0 || token >= size()) throw Error(joined("expected tokens from 0 to ", size() - 1, ", got ", token));
  return is_control(token) && !special ? std::string_view() : impl_->bytes[static_cast<std::size_t>(token)];
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& tokens, bool special) const {
  std::string text;
  for (const std::int32_t token : tokens) text += bytes(token, special);
  return text;
}

bool Tokenizer::adds_space() const { return impl_->adds_space; }
std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(impl_->bytes.size()); }
std::optional<std::int32_t> Tokenizer::begin() const {
  return impl_->before.empty() ? std::nullopt : std::optional(impl_->before.front());
}
const std::vector<std::int32_t>& Tokenizer::before() const { return impl_->before; }
const std::vector<std::int32_t>& Tokenizer::after() const { return impl_->after; }
std::optional<std::int32_t> Tokenizer::bos() const { return impl_->bos; }
std::optional<std::int32_t> Tokenizer::eos() const { return impl_->eos; }
bool Tokenizer::is_end(std::int32_t token) const {
  return token == impl_->eos || token == impl_->eot ||
         std::find(impl_->ends.begin(), impl_->ends.end(), token) != impl_->ends.end();
}
bool Tokenizer::is_control(std::int32_t token) const {
  return impl_->kinds[static_cast<std::size_t>(token)] == Kind::control;
}

}  // namespace bie::text
