#include "text/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bie/formats/error.h"
#include "text/sentence_pieces.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using Kind = Vocabulary::Kind;

constexpr std::int32_t none = -1, unknown_character = -2;

}  // namespace

Unigram::Unigram(const std::vector<std::string>& tokens, const std::vector<Kind>& kinds,
                 const std::vector<double>& scores, const UnigramOptions& options)
    : options_(options), nodes_(1), scores_(scores) {
  if (scores.size() > tokens.size() || (options.is_sentencepiece && scores.size() != tokens.size()))
    throw Error(joined("expected ", tokens.size(), " scores of tokens, got ", scores.size()));
  byte_token_.fill(none);
  add_pieces(tokens, kinds, scores);
  link();
}

void Unigram::add_pieces(const std::vector<std::string>& tokens, const std::vector<Kind>& kinds,
                         const std::vector<double>& scores) {
  const bool is_sentencepiece = options_.is_sentencepiece;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    if (!std::isfinite(scores[i]))
      throw Error(joined("expected a number as the score of token ", i, ", got ", scores[i]));
    if (kinds[i] == Kind::byte) byte_token_[static_cast<unsigned char>(SentencePieces::byte_of(tokens[i]))] = token;
    if (!is_sentencepiece && options_.byte_fallback)
      if (const auto byte = SentencePieces::fallback_byte(tokens[i]))
        byte_token_[static_cast<unsigned char>(*byte)] = token;
    const bool is_normal = kinds[i] == Kind::normal;
    const bool is_piece = is_normal || kinds[i] == Kind::user_defined;
    if (is_normal || !is_sentencepiece) least = std::min(least, scores[i]);
    if (!is_piece || tokens[i].empty()) continue;
    const std::uint32_t node = trie_.add(tokens[i]);
    if (nodes_.size() < trie_.size()) nodes_.resize(trie_.size());
    if (nodes_[node].token != none && is_sentencepiece)
      throw Error(joined("expected every token once, got ", in_quotes(tokens[i]), " twice"));
    nodes_[node].token = token;
  }
  unknown_score_ = least - 10;
  if (is_sentencepiece) unknown_score_ = static_cast<float>(static_cast<float>(least) - 10.0f);
  if (!is_sentencepiece) return;
  // A token of the user is worth more than any piece.
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (kinds[i] == Kind::user_defined)
      scores_[i] = static_cast<float>(0.1 * (static_cast<double>(tokens[i].size()) - 1));
}

/// Fallbacks of Aho and Corasick, node by node in the order of their sizes.
void Unigram::link() {
  std::vector<std::uint32_t> order(nodes_.size());
  for (std::uint32_t node = 1; node < nodes_.size(); ++node) {
    order[node] = node;
    nodes_[node].size = nodes_[trie_.parent(node)].size + 1;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return nodes_[a].size < nodes_[b].size; });
  for (const std::uint32_t node : order) {
    if (node == 0) continue;
    const std::uint32_t parent = trie_.parent(node);
    Node& here = nodes_[node];
    std::uint32_t at = nodes_[parent].fallback, found = 0;
    if (parent != 0)
      while ((found = trie_.next(at, trie_.byte(node))) == 0 && at != 0) at = nodes_[at].fallback;
    here.fallback = found;
    here.ends_here = here.token != none ? node : nodes_[found].ends_here;
  }
}

/// SentencePiece subtracts a sum that has grown too large from all sums that are there.
struct Reset {
  std::size_t at;
  double sum;
};

/// The best way to a place, which is offered ways from places that rise.
class Unigram::Target {
 public:
  Target(const Unigram& model, const std::vector<Reset>& resets, Best* best)
      : model_(model), resets_(resets), next_(resets.size()), best_(*best) {}

  void offer(std::size_t begin, std::uint32_t size, double sum, std::int32_t token) {
    reset_up_to(begin);
    sum = model_.rounded(sum);
    if (best_.token == none || sum > best_.sum) best_ = {sum, size, token};
    is_reached_ = true;
  }
  /// Applies the resets at places up to this one, which came behind the last offer.
  void reset_up_to(std::size_t place) {
    if (!is_reached_) {
      next_ = static_cast<std::size_t>(std::upper_bound(resets_.begin(), resets_.end(), place,
                                                        [](std::size_t at, const Reset& r) { return at < r.at; }) -
                                       resets_.begin());
      return;
    }
    for (; next_ < resets_.size() && resets_[next_].at <= place; ++next_)
      best_.sum = model_.rounded(best_.sum - resets_[next_].sum);
  }

 private:
  const Unigram& model_;
  const std::vector<Reset>& resets_;
  std::size_t next_;
  Best& best_;
  bool is_reached_ = false;
};

double Unigram::rounded(double sum) const {
  return options_.is_sentencepiece ? static_cast<double>(static_cast<float>(sum)) : sum;
}

std::vector<Unigram::Best> Unigram::best_ways(std::string_view text) const {
  constexpr double largest_sum = 100'000;
  std::vector<Best> best(text.size() + 1);
  best[0].token = 0;
  std::vector<Reset> resets;
  std::uint32_t node = 0;
  for (std::size_t at = 0; at < text.size();) {
    const int length = character_bytes(text, at);
    const std::size_t end = at + static_cast<std::size_t>(length > 0 ? length : 1);
    for (std::size_t i = at; i < end; ++i) {
      std::uint32_t found = 0;
      while ((found = trie_.next(node, text[i])) == 0 && node != 0) node = nodes_[node].fallback;
      node = found;
    }
    Target target(*this, resets, &best[end]);
    bool is_piece = false;  // whether the last character is one
    for (std::uint32_t piece = nodes_[node].ends_here; piece != 0; piece = nodes_[nodes_[piece].fallback].ends_here) {
      const Node& here = nodes_[piece];
      const std::size_t begin = end - here.size;
      is_piece = is_piece || begin == at;
      if (best[begin].token != none)  // else inside of a character
        target.offer(begin, here.size, scores_[static_cast<std::size_t>(here.token)] + best[begin].sum, here.token);
    }
    if (!is_piece)
      target.offer(at, static_cast<std::uint32_t>(end - at), unknown_score_ + best[at].sum, unknown_character);
    target.reset_up_to(end);
    if (options_.is_sentencepiece && std::abs(best[end].sum) > largest_sum) {
      resets.push_back({end, best[end].sum});
      best[end].sum = 0;
    }
    at = end;
  }
  return best;
}

void Unigram::append(std::string_view part, std::int32_t token, std::vector<std::int32_t>* tokens) const {
  if (token != unknown_character) return tokens->push_back(token);
  bool has_bytes = options_.byte_fallback;
  for (const char c : part) has_bytes = has_bytes && byte_token_[static_cast<unsigned char>(c)] != none;
  if (has_bytes)
    for (const char c : part) tokens->push_back(byte_token_[static_cast<unsigned char>(c)]);
  else if (options_.unknown)
    tokens->push_back(*options_.unknown);
}

void Unigram::encode(std::string_view text, std::vector<std::int32_t>* tokens) const {
  const std::vector<Best> best = best_ways(text);
  std::vector<std::pair<std::size_t, std::size_t>> parts;  // from the end on; neighbours that are unknown are one
  bool was_unknown = false;
  for (std::size_t end = text.size(); end > 0;) {
    const bool is_unknown = best[end].token == unknown_character;
    const std::size_t begin = end - best[end].size;
    if (is_unknown && was_unknown)
      parts.back().first = begin;
    else
      parts.emplace_back(begin, end);
    was_unknown = is_unknown;
    end = begin;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    append(text.substr(part->first, part->second - part->first), best[part->second].token, tokens);
}

}  // namespace bie::text
