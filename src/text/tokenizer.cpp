#include "bie/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <unordered_map>

#include "bie/formats/error.h"
#include "text/sentence_pieces.h"
#include "text/splitter.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using Kind = Vocabulary::Kind;

constexpr std::int32_t none = -1;

/// The character that stands for each byte in files of byte-level BPE: printable Latin characters for themselves, the
/// others from U+0100 on. Source: GPT-2, bytes_to_unicode.
std::array<unsigned, 256> characters_of_bytes() {
  std::array<unsigned, 256> characters{};
  unsigned next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    characters[b] = printable ? b : next++;
  }
  return characters;
}

/// The bytes that a token's characters stand for; the token itself where one of them stands for none.
std::string bytes_of(const std::string& token, const std::unordered_map<std::string, char>& byte_of) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const int length = character_bytes(token, at);
    if (length <= 0) return token;
    const auto found = byte_of.find(token.substr(at, static_cast<std::size_t>(length)));
    if (found == byte_of.end()) return token;
    bytes += found->second;
    at += static_cast<std::size_t>(length);
  }
  return bytes;
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

struct Merge {
  std::int32_t rank, token;
};

/// Names of control or user-defined tokens, found in a text: of those that begin at the first place the longest.
class Names {
 public:
  void add(const std::string& name, std::int32_t token) {
    std::uint64_t node = 0;
    begins_[static_cast<unsigned char>(name[0])] = true;
    for (const char c : name) node = next_.emplace(step(node, c), next_.size() + 1).first->second;
    if (token_.size() <= node) token_.resize(node + 1, none);
    token_[node] = token;
  }
  /// Bytes of the longest name that begins the text, 0 for none.
  std::size_t match(std::string_view text, std::int32_t* token) const {
    if (text.empty() || !begins_[static_cast<unsigned char>(text[0])]) return 0;
    std::uint64_t node = 0;
    std::size_t length = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto found = next_.find(step(node, text[i]));
      if (found == next_.end()) break;
      node = found->second;
      if (node < token_.size() && token_[node] != none) {
        length = i + 1;
        *token = token_[node];
      }
    }
    return length;
  }

 private:
  static std::uint64_t step(std::uint64_t node, char c) { return node << 8 | static_cast<unsigned char>(c); }
  std::unordered_map<std::uint64_t, std::uint64_t> next_;
  std::vector<std::int32_t> token_;
  std::array<bool, 256> begins_{};
};

/// Where the special parts of a text end, asked in the order of the text.
class SpecialParts {
 public:
  void add(std::size_t bytes, bool special) {
    if (bytes == 0) return;
    const std::size_t end = (ends_.empty() ? 0 : ends_.back().first) + bytes;
    if (!ends_.empty() && ends_.back().second == special)
      ends_.back().first = end;
    else
      ends_.emplace_back(end, special);
  }
  /// Bytes from `at` to the end of its part; 0 where that is not special.
  std::size_t left(std::size_t at) {
    while (ends_[part_].first <= at) ++part_;
    return ends_[part_].second ? ends_[part_].first - at : 0;
  }

 private:
  std::vector<std::pair<std::size_t, bool>> ends_;
  std::size_t part_ = 0;
};

/// Calls put(token) for the names that match(at, &token) finds in a text, whose bytes it returns, and plain(part) for
/// what lies between them, in the order of the text.
template <class Match, class Plain, class Put>
void cut(std::string_view text, const Match& match, const Plain& plain, const Put& put) {
  std::size_t from = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::int32_t token = none;
    const std::size_t length = match(at, &token);
    if (length == 0) {
      ++at;
      continue;
    }
    plain(text.substr(from, at - from));
    put(token);
    at += length;
    from = at;
  }
  plain(text.substr(from));
}

}  // namespace

struct Tokenizer::Impl {
  std::vector<std::string> bytes, names;  // per token
  std::vector<Kind> kinds;
  std::array<std::int32_t, 256> byte_token{};
  std::unordered_map<std::string_view, std::int32_t> whole;  // normal tokens by their bytes
  std::unordered_map<std::uint64_t, Merge> merges;
  Names control, user_defined;
  std::unique_ptr<Splitter> splitter;
  bool whole_first = false;
  std::unique_ptr<SentencePieces> pieces;  // or all of the above but the names
  bool adds_space = false, adds_bos = false;
  std::optional<std::int32_t> bos, eos, eot;

  explicit Impl(Vocabulary v);
  void add_name(std::size_t token, const std::string& name);
  void read_bytes(const Vocabulary& v);
  void read_pieces(const Vocabulary& v);
  void read_merges(const std::vector<std::string>& lines,
                   const std::unordered_map<std::string_view, std::int32_t>& token_of);
  void merge(std::string_view piece, std::vector<std::int32_t>* tokens) const;
};

Tokenizer::Impl::Impl(Vocabulary v) : names(std::move(v.tokens)), kinds(std::move(v.kinds)) {
  bos = v.bos;
  eos = v.eos;
  eot = v.eot;
  bytes.reserve(names.size());
  v.scheme == Vocabulary::Scheme::bytes ? read_bytes(v) : read_pieces(v);
}

/// Adds the name under which a control or user-defined token is found in texts; other tokens have none.
void Tokenizer::Impl::add_name(std::size_t token, const std::string& name) {
  if (kinds[token] != Kind::control && kinds[token] != Kind::user_defined) return;
  if (name.empty()) throw Error(joined("expected a name of special token ", token, ", got none"));
  (kinds[token] == Kind::control ? control : user_defined).add(name, static_cast<std::int32_t>(token));
}

void Tokenizer::Impl::read_pieces(const Vocabulary& v) {
  pieces = std::make_unique<SentencePieces>(names, kinds, v.scores);
  for (std::size_t i = 0; i < names.size(); ++i) {
    bytes.push_back(kinds[i] == Kind::byte ? std::string(1, SentencePieces::byte_of(names[i])) : with_spaces(names[i]));
    add_name(i, with_marks(names[i]));
  }
  adds_space = v.adds_space;
  adds_bos = v.adds_bos.value_or(true);
}

void Tokenizer::Impl::read_bytes(const Vocabulary& v) {
  const std::optional<SplitRule> rule = split_rule(v.splitter);
  if (!rule)
    throw Error(joined("expected a tokenizer that splits text as one of ", split_rule_names(), ", got ",
                       in_quotes(v.splitter)));
  splitter = std::make_unique<Splitter>(*rule);
  whole_first = rule->whole_first;
  adds_bos = v.adds_bos.value_or(rule->adds_bos);
  const auto characters = characters_of_bytes();
  std::unordered_map<std::string, char> byte_of;
  for (unsigned b = 0; b < 256; ++b) byte_of.emplace(utf8_of(characters[b]), static_cast<char>(b));
  std::unordered_map<std::string_view, std::int32_t> token_of;
  byte_token.fill(none);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    const bool is_normal = kinds[i] == Kind::normal || kinds[i] == Kind::byte;
    bytes.push_back(is_normal ? bytes_of(names[i], byte_of) : names[i]);
    add_name(i, names[i]);
    if (!is_normal) continue;
    if (!token_of.emplace(names[i], token).second)
      throw Error(joined("expected every token once, got ", in_quotes(names[i]), " twice"));
    whole.emplace(bytes.back(), token);
    if (bytes.back().size() == 1) byte_token[static_cast<unsigned char>(bytes.back()[0])] = token;
  }
  read_merges(v.merges, token_of);
}

void Tokenizer::Impl::read_merges(const std::vector<std::string>& lines,
                                  const std::unordered_map<std::string_view, std::int32_t>& token_of) {
  const auto token = [&](std::string_view name, std::size_t line) {
    const auto found = token_of.find(name);
    if (found == token_of.end())
      throw Error(joined("merge ", line, ", ", in_quotes(lines[line]), ": expected tokens of the vocabulary, got ",
                         in_quotes(name)));
    return found->second;
  };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t space = lines[i].find(' ', 1);
    if (space == std::string::npos || space + 1 == lines[i].size())
      throw Error(joined("merge ", i, ": expected two tokens, got ", in_quotes(lines[i])));
    const std::string_view line = lines[i], left = line.substr(0, space), right = line.substr(space + 1);
    const std::string joint = std::string(left) + std::string(right);
    const std::int32_t a = token(left, i), b = token(right, i), whole_token = token(joint, i);
    const auto bytes_at = [&](std::int32_t at) -> std::string_view { return bytes[static_cast<std::size_t>(at)]; };
    // A name with a character that stands for no byte is taken as it is, its other characters too.
    if (const std::string_view all = bytes_at(whole_token);
        all.substr(0, bytes_at(a).size()) != bytes_at(a) || all.substr(bytes_at(a).size()) != bytes_at(b))
      throw Error(joined("merge ", i, ", ", in_quotes(line), ": expected a token of the bytes of both, got ",
                         in_quotes(joint)));
    merges.emplace(pair_key(a, b), Merge{static_cast<std::int32_t>(i), whole_token});
  }
}

/// Repeatedly merges the neighbours whose merge has the least rank; among equals, the leftmost.
void Tokenizer::Impl::merge(std::string_view piece, std::vector<std::int32_t>* tokens) const {
  if (whole_first)
    if (const auto found = whole.find(piece); found != whole.end()) return tokens->push_back(found->second);
  struct Symbol {
    std::int32_t token;
    std::int64_t before, after;  // -1: none
  };
  std::vector<Symbol> symbols;
  for (const char c : piece) {
    const std::int32_t token = byte_token[static_cast<unsigned char>(c)];
    if (token == none) continue;  // the vocabulary lacks this byte
    const auto at = static_cast<std::int64_t>(symbols.size());
    symbols.push_back({token, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().after = -1;
  struct Candidate {
    std::int32_t rank, left_token, right_token;
    std::int64_t at;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  std::priority_queue<Candidate> candidates;
  const auto offer = [&](std::int64_t left) {
    if (left < 0 || symbols[static_cast<std::size_t>(left)].after < 0) return;
    const std::int32_t a = symbols[static_cast<std::size_t>(left)].token,
                       b = symbols[static_cast<std::size_t>(symbols[static_cast<std::size_t>(left)].after)].token;
    const auto found = merges.find(pair_key(a, b));
    if (found != merges.end()) candidates.push({found->second.rank, a, b, left});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(static_cast<std::int64_t>(i));
  while (!candidates.empty()) {
    const Candidate c = candidates.top();
    candidates.pop();
    Symbol& left = symbols[static_cast<std::size_t>(c.at)];
    if (left.token != c.left_token || left.after < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.after)];
    if (right.token != c.right_token) continue;
    left.token = merges.at(pair_key(c.left_token, c.right_token)).token;
    right.token = none;
    left.after = right.after;
    if (left.after >= 0) symbols[static_cast<std::size_t>(left.after)].before = c.at;
    offer(left.before);
    offer(c.at);
  }
  for (std::int64_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].after)
    tokens->push_back(symbols[static_cast<std::size_t>(i)].token);
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
    const std::size_t before = text.size();
    text += impl_->pieces == nullptr ? std::string(part.text) : with_marks(part.text);
    special.add(text.size() - before, part.special);
  }
  const std::string_view all = text;
  std::vector<std::int32_t> tokens;
  const auto put = [&](std::int32_t token) { tokens.push_back(token); };
  const auto match_control = [&](std::size_t at, std::int32_t* token) {
    return impl_->control.match(all.substr(at, special.left(at)), token);
  };
  if (impl_->pieces == nullptr) {
    const auto merge = [&](std::string_view piece) { impl_->merge(piece, &tokens); };
    const auto match = [&](std::size_t at, std::int32_t* token) {
      std::int32_t other = none;
      const std::size_t length = match_control(at, token), of_other = impl_->user_defined.match(all.substr(at), &other);
      if (of_other > length) *token = other;
      return std::max(length, of_other);
    };
    cut(
        all, match, [&](std::string_view part) { impl_->splitter->split(part, merge); }, put);
    return tokens;
  }
  const auto join = [&](std::string_view part) { impl_->pieces->encode(part, &tokens); };
  const auto part_of_text = [&](std::string_view part) {
    if (part.empty()) return;
    const std::string spaced = std::string(impl_->adds_space ? space_mark : "").append(part);
    const auto match = [&](std::size_t at, std::int32_t* token) {
      return impl_->user_defined.match(std::string_view(spaced).substr(at), token);
    };
    cut(spaced, match, join, put);
  };
  cut(all, match_control, part_of_text, put);
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
std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(impl_->names.size()); }
std::optional<std::int32_t> Tokenizer::begin() const { return impl_->adds_bos ? impl_->bos : std::nullopt; }
std::optional<std::int32_t> Tokenizer::bos() const { return impl_->bos; }
std::optional<std::int32_t> Tokenizer::eos() const { return impl_->eos; }
bool Tokenizer::is_end(std::int32_t token) const { return token == impl_->eos || token == impl_->eot; }
bool Tokenizer::is_control(std::int32_t token) const {
  return impl_->kinds[static_cast<std::size_t>(token)] == Kind::control;
}

}  // namespace bie::text
