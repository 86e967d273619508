#include "text/merges.h"

#include <algorithm>

#include "bie/formats/error.h"
#include "text/sentence_pieces.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using Kind = Vocabulary::Kind;

constexpr std::int32_t none = TokensByText::none;

struct Candidate {
  std::int32_t rank, left_token, right_token;
  std::int64_t at;
  bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
};

}  // namespace

Merges::Merges(const std::vector<std::string>& texts, const Vocabulary& v, const std::vector<std::string>& names,
               const MergeOptions& options)
    : options_(options), whole_(texts), merges_(v.merges.size()) {
  TokensByText token_of(names);
  byte_token_.fill(none);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    if (v.kinds[i] == Kind::unused) continue;  // a number that the file leaves out, or a token that is only added
    // GGUF's files have no merges of other tokens.
    if (v.description.empty() && v.kinds[i] != Kind::normal && v.kinds[i] != Kind::byte) continue;
    if (!token_of.add(token)) throw Error(joined("expected every token once, got ", in_quotes(names[i]), " twice"));
    if (v.kinds[i] == Kind::control) continue;  // whoever writes its name as text gets text
    whole_.add(token);
    if (options.of_bytes && texts[i].size() == 1) byte_token_[static_cast<unsigned char>(texts[i][0])] = token;
  }
  if (!options.of_bytes && options.byte_fallback) read_bytes_of_fallback(names);
  // A mark that is no token would wait for its neighbours, where unknown ones are one token.
  joins_words_ = whole_.find(space_mark) == none;
  read_merges(texts, v, token_of);
}

void Merges::read_bytes_of_fallback(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const std::optional<char> byte = SentencePieces::fallback_byte(names[i]))
      byte_token_[static_cast<unsigned char>(*byte)] = static_cast<std::int32_t>(i);
}

void Merges::read_merges(const std::vector<std::string>& texts, const Vocabulary& v, const TokensByText& token_of) {
  const auto token = [&](const std::string& name, std::size_t line) {
    const std::int32_t found = token_of.find(name);
    if (found == none)
      throw Error(joined("merge ", line, ", ", in_quotes(joined(v.merges[line].first, " ", v.merges[line].second)),
                         ": expected tokens of the vocabulary, got ", in_quotes(name)));
    return found;
  };
  for (std::size_t i = 0; i < v.merges.size(); ++i) {
    const auto& [left, right] = v.merges[i];
    const std::string joint = left + right;
    const std::int32_t a = token(left, i), b = token(right, i), whole_token = token(joint, i);
    if (v.kinds[static_cast<std::size_t>(whole_token)] == Kind::control) continue;
    const auto text = [&](std::int32_t at) -> std::string_view { return texts[static_cast<std::size_t>(at)]; };
    // A name with a character that stands for no byte is taken as it is, its other characters too.
    if (const std::string_view all = text(whole_token);
        all.substr(0, text(a).size()) != text(a) || all.substr(text(a).size()) != text(b))
      throw Error(joined("merge ", i, ", ", in_quotes(joined(left, " ", right)),
                         ": expected a token of the bytes of both, got ", in_quotes(joint)));
    joins_words_ = joins_words_ || has_inner_mark(joint);
    merges_.add({a, b, static_cast<std::int32_t>(i), whole_token}, options_.last_counts);
  }
}

void Merges::add_bytes(std::string_view piece, std::vector<Symbol>* symbols) const {
  bool was_unknown = false;
  for (const char c : piece) {
    std::int32_t token = byte_token_[static_cast<unsigned char>(c)];
    const bool is_unknown = token == none;
    if (is_unknown) {
      if (!options_.unknown || (was_unknown && options_.fuses_unknown)) continue;  // the vocabulary lacks this byte
      token = *options_.unknown;
    }
    was_unknown = is_unknown;
    symbols->push_back({token, 0, 0});
  }
}

/// An unknown character waits for those that follow, and comes behind the bytes of these.
void Merges::add_characters(std::string_view piece, std::vector<Symbol>* symbols) const {
  bool waits = false;
  for (std::size_t at = 0; at < piece.size();) {
    const int length = character_bytes(piece, at);
    const std::string_view character = piece.substr(at, static_cast<std::size_t>(length > 0 ? length : 1));
    at += character.size();
    if (const std::int32_t found = whole_.find(character); found != none) {
      if (waits) symbols->push_back({*options_.unknown, 0, 0});
      waits = false;
      symbols->push_back({found, 0, 0});
      continue;
    }
    bool has_bytes = options_.byte_fallback;
    for (const char c : character) has_bytes = has_bytes && byte_token_[static_cast<unsigned char>(c)] != none;
    if (has_bytes) {
      for (const char c : character) symbols->push_back({byte_token_[static_cast<unsigned char>(c)], 0, 0});
    } else if (options_.unknown) {
      if (waits && !options_.fuses_unknown) symbols->push_back({*options_.unknown, 0, 0});
      waits = true;
    }
  }
  if (waits) symbols->push_back({*options_.unknown, 0, 0});
}

/// Memory that the parts of a piece share.
struct Merges::Work {
  std::vector<Symbol> symbols;
  std::vector<Candidate> candidates;  ///< a heap
};

/// Repeatedly merges the neighbours whose merge has the least rank; among equals, the leftmost.
void Merges::encode(std::string_view piece, std::vector<std::int32_t>* tokens) const {
  if (options_.whole_first)
    if (const std::int32_t found = whole_.find(piece); found != none) return tokens->push_back(found);
  Work work;
  if (options_.of_bytes || joins_words_) return encode_part(piece, &work, tokens);
  for_each_marked(piece, [&](std::string_view part) { encode_part(part, &work, tokens); });
}

void Merges::encode_part(std::string_view piece, Work* work, std::vector<std::int32_t>* tokens) const {
  std::vector<Symbol>& symbols = work->symbols;
  symbols.clear();
  options_.of_bytes ? add_bytes(piece, &symbols) : add_characters(piece, &symbols);
  if (symbols.empty()) return;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].before = static_cast<std::int64_t>(i) - 1;
    symbols[i].after = static_cast<std::int64_t>(i) + 1;
  }
  symbols.back().after = -1;
  const auto symbol = [&](std::int64_t at) -> Symbol& { return symbols[static_cast<std::size_t>(at)]; };
  std::vector<Candidate>& candidates = work->candidates;
  const auto offer = [&](std::int64_t left) {
    if (left < 0 || symbol(left).after < 0) return;
    const std::int32_t a = symbol(left).token, b = symbol(symbol(left).after).token;
    const MergesByPair::Merge* const found = merges_.find(a, b);
    if (found == nullptr) return;
    candidates.push_back({found->rank, a, b, left});
    std::push_heap(candidates.begin(), candidates.end());
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(static_cast<std::int64_t>(i));
  while (!candidates.empty()) {
    const Candidate c = candidates.front();
    std::pop_heap(candidates.begin(), candidates.end());
    candidates.pop_back();
    Symbol& left = symbol(c.at);
    if (left.token != c.left_token || left.after < 0) continue;
    Symbol& right = symbol(left.after);
    if (right.token != c.right_token) continue;
    left.token = merges_.find(c.left_token, c.right_token)->token;
    right.token = none;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = c.at;
    offer(left.before);
    offer(c.at);
  }
  for (std::int64_t i = 0; i >= 0; i = symbol(i).after) tokens->push_back(symbol(i).token);
}

}  // namespace bie::text
