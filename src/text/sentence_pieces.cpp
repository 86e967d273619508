#include "text/sentence_pieces.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "bie/formats/error.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using Kind = Vocabulary::Kind;

constexpr std::int32_t none = -1;

int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                : -1;
}

/// A part of the text; parts that were joined to the one before have no bytes.
struct Symbol {
  std::size_t begin, size;
  std::int64_t before, after;  // none: -1
};

struct Candidate {
  double score;
  std::int64_t left;
  std::size_t size;  ///< of both: what it was made of has changed where the sum is another
  bool operator<(const Candidate& o) const { return score != o.score ? score < o.score : left > o.left; }
};

}  // namespace

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  std::size_t from = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, from)) {
    result.append(text.substr(from, at - from)).append(with);
    from = at + what.size();
  }
  return result.append(text.substr(from));
}

bool has_inner_mark(std::string_view name) {
  while (name.substr(0, space_mark.size()) == space_mark) name.remove_prefix(space_mark.size());
  return name.find(space_mark) != std::string_view::npos;
}

std::string with_marks(std::string_view text) { return replaced(text, " ", space_mark); }
std::string with_spaces(std::string_view text) { return replaced(text, space_mark, " "); }

std::optional<char> SentencePieces::fallback_byte(std::string_view name) {
  const bool fits = name.size() == 6 && name.substr(0, 3) == "<0x" && name[5] == '>';
  const int high = fits ? hex_digit(name[3]) : -1, low = fits ? hex_digit(name[4]) : -1;
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(16 * high + low);
}

char SentencePieces::byte_of(std::string_view name) {
  if (const std::optional<char> byte = fallback_byte(name)) return *byte;
  throw Error(joined("expected a byte's token such as \"<0x0A>\", got ", in_quotes(name)));
}

SentencePieces::SentencePieces(const std::vector<std::string>& tokens, const std::vector<Kind>& kinds,
                               const std::vector<double>& scores)
    : unknown_(none) {
  if (scores.size() != tokens.size())
    throw Error(joined("expected ", tokens.size(), " scores of tokens, got ", scores.size()));
  byte_token_.fill(none);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    if (std::isnan(scores[i])) throw Error(joined("expected a number as the score of token ", i, ", got NaN"));
    if (kinds[i] == Kind::unknown && unknown_ == none) unknown_ = token;
    if (kinds[i] == Kind::byte) byte_token_[static_cast<unsigned char>(byte_of(tokens[i]))] = token;
    joins_words_ = joins_words_ || (kinds[i] == Kind::normal && has_inner_mark(tokens[i]));
    if (kinds[i] == Kind::normal && !pieces_.emplace(tokens[i], Piece{scores[i], token}).second)
      throw Error(joined("expected every token once, got ", in_quotes(tokens[i]), " twice"));
  }
}

/// Memory that the parts of a text share.
struct SentencePieces::Work {
  std::vector<Symbol> symbols;
  std::vector<Candidate> candidates;  ///< a heap
  bool was_unknown = false;
};

void SentencePieces::encode(std::string_view text, std::vector<std::int32_t>* tokens) const {
  Work work;
  if (joins_words_) return encode_part(text, &work, tokens);
  for_each_marked(text, [&](std::string_view part) { encode_part(part, &work, tokens); });
}

void SentencePieces::encode_part(std::string_view text, Work* work, std::vector<std::int32_t>* tokens) const {
  std::vector<Symbol>& symbols = work->symbols;
  symbols.clear();
  for (std::size_t at = 0; at < text.size();) {
    const int length = character_bytes(text, at);
    const auto size = static_cast<std::size_t>(length > 0 ? length : 1);  // a byte that is no UTF-8 stands alone
    const auto index = static_cast<std::int64_t>(symbols.size());
    symbols.push_back({at, size, index - 1, index + 1});
    at += size;
  }
  if (symbols.empty()) return;
  symbols.back().after = none;
  const auto symbol = [&](std::int64_t at) -> Symbol& { return symbols[static_cast<std::size_t>(at)]; };

  std::vector<Candidate>& candidates = work->candidates;
  const auto offer = [&](std::int64_t left) {
    if (left < 0 || symbol(left).after < 0) return;
    const std::size_t size = symbol(left).size + symbol(symbol(left).after).size;
    const auto found = pieces_.find(text.substr(symbol(left).begin, size));
    if (found == pieces_.end()) return;
    candidates.push_back({found->second.score, left, size});
    std::push_heap(candidates.begin(), candidates.end());
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(static_cast<std::int64_t>(i));
  while (!candidates.empty()) {
    const Candidate c = candidates.front();
    std::pop_heap(candidates.begin(), candidates.end());
    candidates.pop_back();
    Symbol& left = symbol(c.left);
    if (left.size == 0 || left.after < 0 || left.size + symbol(left.after).size != c.size) continue;
    Symbol& right = symbol(left.after);
    left.size = c.size;
    right.size = 0;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = c.left;
    offer(left.before);
    offer(c.left);
  }

  for (std::int64_t at = 0; at >= 0; at = symbol(at).after) {
    const std::string_view part = text.substr(symbol(at).begin, symbol(at).size);
    const auto found = pieces_.find(part);
    if (found != pieces_.end()) {
      tokens->push_back(found->second.token);
      work->was_unknown = false;
      continue;
    }
    bool has_bytes = true;
    for (const char c : part) has_bytes = has_bytes && byte_token_[static_cast<unsigned char>(c)] != none;
    if (has_bytes)
      for (const char c : part) tokens->push_back(byte_token_[static_cast<unsigned char>(c)]);
    else if (unknown_ != none && !work->was_unknown)  // neighbours that are unknown are one piece
      tokens->push_back(unknown_);
    work->was_unknown = !has_bytes;
  }
}

}  // namespace bie::text
