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

void read_bytes(const GgufFile& file, const std::string& prefix, Vocabulary* v) {
  if (const auto* merges = value_at<std::vector<std::string>>(file, prefix + "merges", "texts")) {
    for (const std::string& line : *merges) {
      const std::size_t space = line.find(' ', 1);
      if (line.empty() || space == std::string::npos || space + 1 == line.size())
        formats::fail_file(kind, file.path, "merge ", v->merges.size(), ": expected two tokens, got ", in_quotes(line));
      v->merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
  }
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
  v->adds_space = adds == nullptr || *adds != 0;
  v->adds_bos = true;
}

}  // namespace

Vocabulary gguf_vocabulary(const GgufFile& file) {
  const std::string prefix = "tokenizer.ggml.";
  const auto* model = value_at<std::string>(file, prefix + "model", "a text");
  if (model == nullptr) formats::fail_file(kind, file.path, "holds no tokenizer");
  if (*model != "gpt2" && *model != "llama")
    formats::fail_file(kind, file.path,
                       "expected a tokenizer of byte-level BPE, \"gpt2\", or of SentencePiece, "
                       "\"llama\", got ",
                       in_quotes(*model));
  Vocabulary v;
  v.scheme = *model == "gpt2" ? Vocabulary::Scheme::bytes : Vocabulary::Scheme::pieces;
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
  if (v.scheme == Vocabulary::Scheme::bytes)
    read_bytes(file, prefix, &v);
  else
    read_pieces(file, prefix, &v);
  v.bos = token_at(file, prefix + "bos_token_id", v.tokens.size());
  v.eos = token_at(file, prefix + "eos_token_id", v.tokens.size());
  v.eot = token_at(file, prefix + "eot_token_id", v.tokens.size());
  if (const auto* adds = value_at<std::uint64_t>(file, prefix + "add_bos_token", "a bool")) v.adds_bos = *adds != 0;
  if (const auto* adds = value_at<std::uint64_t>(file, prefix + "add_eos_token", "a bool")) v.adds_eos = *adds != 0;
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
