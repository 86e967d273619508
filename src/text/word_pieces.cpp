#include "text/word_pieces.h"

#include "bie/formats/error.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using Kind = Vocabulary::Kind;

constexpr std::int32_t none = -1;
constexpr std::size_t longest_word = 1000;  // a word takes time that is quadratic in this

}  // namespace

WordPieces::WordPieces(const std::vector<std::string>& tokens, const std::vector<Kind>& kinds,
                       const WordPieceOptions& options)
    : options_(options) {
  if (options.longest_word > longest_word)
    throw Error(
        joined("\"max_input_chars_per_word\": expected at most ", longest_word, ", got ", options.longest_word));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (kinds[i] == Kind::control || kinds[i] == Kind::unused || tokens[i].empty()) continue;
    const std::uint32_t node = trie_.add(tokens[i]);
    if (token_of_.size() < trie_.size()) token_of_.resize(trie_.size(), none);
    if (token_of_[node] != none) throw Error(joined("expected every token once, got ", in_quotes(tokens[i]), " twice"));
    token_of_[node] = static_cast<std::int32_t>(i);
  }
  first_ = trie_.add(options.first_prefix);
  later_ = trie_.add(options.later_prefix);
  token_of_.resize(trie_.size(), none);
}

void WordPieces::encode(std::string_view word, std::vector<std::int32_t>* tokens) const {
  const std::size_t before = tokens->size();
  const auto unknown = [&] {
    tokens->resize(before);
    if (options_.unknown) tokens->push_back(*options_.unknown);
  };
  std::size_t characters = 0;
  for (std::size_t at = 0; at < word.size();) {
    const int length = character_bytes(word, at);
    at += static_cast<std::size_t>(length > 0 ? length : 1);
    if (++characters > options_.longest_word) return unknown();
  }
  for (std::size_t at = 0; at < word.size();) {
    std::uint32_t node = at == 0 ? first_ : later_;
    std::size_t end = at;
    std::int32_t token = none;
    for (std::size_t i = at; i < word.size(); ++i) {
      node = trie_.next(node, word[i]);
      if (node == 0) break;
      if (token_of_[node] == none) continue;
      token = token_of_[node];
      end = i + 1;
    }
    if (token == none) return unknown();
    tokens->push_back(token);
    at = end;
  }
}

}  // namespace bie::text
