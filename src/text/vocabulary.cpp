// The tokenizer of a GGUF file.
#include <limits>
#include <utility>

#include "bie/formats/error.h"
#include "bie/text/tokenizer.h"

namespace bie::text {
namespace {

using formats::GgufFile;
using formats::in_quotes;

constexpr const char* kind = "GGUF file";

template <class T>
const T* value_at(const GgufFile& file, const std::string& key, const char* wanted) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) return nullptr;
  if (const auto* value = std::get_if<T>(&found->second.value)) return value;
  formats::fail_file(kind, file.path, "the metadata ", in_quotes(key), ": expected ", wanted);
}

std::optional<std::int32_t> token_at(const GgufFile& file, const std::string& key, std::size_t tokens) {
  const auto* value = value_at<std::uint64_t>(file, key, "a token");
  if (value == nullptr) return std::nullopt;
  if (*value >= tokens)
    formats::fail_file(kind, file.path, "the metadata ", in_quotes(key), ": expected a token from 0 to ", tokens - 1,
                       ", got ", *value);
  return static_cast<std::int32_t>(*value);
}

Vocabulary::Scheme scheme_of(const GgufFile& file, const std::string& model) {
  if (model == "gpt2" || model == "gemma4") return Vocabulary::Scheme::bytes;
  if (model == "llama") return Vocabulary::Scheme::pieces;
  if (model == "t5") return Vocabulary::Scheme::unigram;
  if (model == "bert") return Vocabulary::Scheme::words;
  formats::fail_file(
      kind, file.path,
      "expected a tokenizer of BPE, \"gpt2\" or \"gemma4\", of SentencePiece, \"llama\" or \"t5\", or of "
      "WordPiece, \"bert\", got ",
      in_quotes(model));
}

void read_merges(const GgufFile& file, const std::string& prefix, Vocabulary* v) {
  if (const auto* merges = value_at<std::vector<std::string>>(file, prefix + "merges", "texts")) {
    for (const std::string& line : *merges) {
      const std::size_t space = line.find(' ', 1);
      if (line.empty() || space == std::string::npos || space + 1 == line.size())
        formats::fail_file(kind, file.path, "merge ", v->merges.size(), ": expected two tokens, got ", in_quotes(line));
      v->merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
  }
}

void read_bytes(const GgufFile& file, const std::string& prefix, Vocabulary* v) {
  read_merges(file, prefix, v);
  const auto* splitter = value_at<std::string>(file, prefix + "pre", "a text");
  if (splitter == nullptr)
    formats::fail_file(kind, file.path, "does not say how its tokenizer splits a text: expected the metadata ",
                       in_quotes(prefix + "pre"));
  v->splitter = *splitter;
}

/// Files that do not say otherwise begin a text with BOS and a space, as llama 2 does.
void read_pieces(const GgufFile& file, const std::string& prefix, Vocabulary* v) {
  const auto* scores = value_at<std::vector<double>>(file, prefix + "scores", "numbers of float32");
  if (scores == nullptr) formats::fail_file(kind, file.path, "holds no scores of tokens");
  for (const double score : *scores) v->scores.push_back(score);
  const auto* adds = value_at<std::uint64_t>(file, prefix + "add_space_prefix", "a bool");
  v->adds_space = adds == nullptr ? v->scheme == Vocabulary::Scheme::pieces : *adds != 0;
  const auto* removes = value_at<std::uint64_t>(file, prefix + "remove_extra_whitespaces", "a bool");
  v->removes_spaces = removes != nullptr && *removes != 0;
  const std::string charsmap = prefix + "precompiled_charsmap";
  if (const auto* bytes = value_at<std::vector<std::uint64_t>>(file, charsmap, "numbers of uint8"))
    for (const std::uint64_t byte : *bytes) v->charsmap += static_cast<char>(byte);
  v->adds_bos = v->scheme == Vocabulary::Scheme::pieces;
  v->adds_eos = v->scheme == Vocabulary::Scheme::unigram;
}

/// Gemma 4's merges of characters, spaces as U+2581; lines end before and after runs of line ends.
void read_gemma(const GgufFile& file, const std::string& prefix, Vocabulary* v) {
  read_merges(file, prefix, v);
  v->description = R"({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
      "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[^\\n]+|\\n+"}, "behavior": "Isolated"},
      "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}]},
      "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true}})";
  if (v->adds_bos.value_or(true) && v->bos) v->before.push_back(*v->bos);
  if (v->adds_eos.value_or(false) && v->eos) v->after.push_back(*v->eos);
}

/// BERT's words; U+2581 stands before tokens that begin one.
void read_words(const GgufFile& file, const std::string& prefix, Vocabulary* v) {
  const auto setting = [&](const char* name, bool otherwise) {
    const auto* value = value_at<std::uint64_t>(file, prefix + "normalizer." + name, "a bool");
    return value == nullptr ? otherwise : *value != 0;
  };
  const bool lowers = setting("lowercase", true), strips = setting("strip_accents", lowers);
  v->description = formats::joined(R"({"normalizer": {"type": "BertNormalizer", "lowercase": )",
                                   lowers ? "true" : "false", R"(, "strip_accents": )", strips ? "true" : "false",
                                   R"(}, "pre_tokenizer": {"type": "BertPreTokenizer"},
      "decoder": {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      "model": {"type": "WordPiece", "first_prefix": "\u2581", "continuing_subword_prefix": ""}})");
  const auto begin = token_at(file, prefix + "cls_token_id", v->tokens.size());
  const auto end = token_at(file, prefix + "seperator_token_id", v->tokens.size());
  if (const auto token = begin ? begin : v->bos) v->before.push_back(*token);
  if (const auto token = end ? end : v->eos) v->after.push_back(*token);
}

}  // namespace

Vocabulary gguf_vocabulary(const GgufFile& file) {
  const std::string prefix = "tokenizer.ggml.";
  const auto* model = value_at<std::string>(file, prefix + "model", "a text");
  if (model == nullptr) formats::fail_file(kind, file.path, "holds no tokenizer");
  Vocabulary v;
  v.scheme = scheme_of(file, *model);
  const auto* tokens = value_at<std::vector<std::string>>(file, prefix + "tokens", "texts");
  if (tokens == nullptr || tokens->empty()) formats::fail_file(kind, file.path, "holds no tokens");
  if (tokens->size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / 2))
    formats::fail_file(kind, file.path, "holds too many tokens, ", tokens->size());
  v.tokens = *tokens;
  v.kinds.assign(v.tokens.size(), Vocabulary::Kind::normal);
  if (const auto* types = value_at<std::vector<std::int64_t>>(file, prefix + "token_type", "numbers of int32")) {
    if (types->size() != v.tokens.size())
      formats::fail_file(kind, file.path, "expected ", v.tokens.size(), " types of tokens, got ", types->size());
    for (std::size_t i = 0; i < types->size(); ++i) {
      if ((*types)[i] < 1 || (*types)[i] > 6)
        formats::fail_file(kind, file.path, "token ", i, ": expected a type from 1 to 6, got ", (*types)[i]);
      v.kinds[i] = static_cast<Vocabulary::Kind>((*types)[i]);
    }
  }
  if (*model == "gpt2") read_bytes(file, prefix, &v);
  if (*model == "llama" || *model == "t5") read_pieces(file, prefix, &v);
  v.unknown = token_at(file, prefix + "unknown_token_id", v.tokens.size());
  v.padding = token_at(file, prefix + "padding_token_id", v.tokens.size());
  v.bos = token_at(file, prefix + "bos_token_id", v.tokens.size());
  v.eos = token_at(file, prefix + "eos_token_id", v.tokens.size());
  v.eot = token_at(file, prefix + "eot_token_id", v.tokens.size());
  if (const auto* adds = value_at<std::uint64_t>(file, prefix + "add_bos_token", "a bool")) v.adds_bos = *adds != 0;
  if (const auto* adds = value_at<std::uint64_t>(file, prefix + "add_eos_token", "a bool")) v.adds_eos = *adds != 0;
  if (*model == "gemma4") read_gemma(file, prefix, &v);
  if (*model == "bert") read_words(file, prefix, &v);
  return v;
}

Tokenizer gguf_tokenizer(const GgufFile& file) {
  Vocabulary vocabulary = gguf_vocabulary(file);
  try {
    return Tokenizer(std::move(vocabulary));
  } catch (const formats::Error& error) {
    formats::fail_file(kind, file.path, error.what());
  }
}

}  // namespace bie::text
