#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "bie/formats/error.h"
#include "text/utf8.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;

/// What \w is to Oniguruma, as the inside of a class: the fractions and small digits of Latin-1 belong to it.
constexpr std::string_view word_class = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// Reads a pattern from left to right and knows where the last operand of a quantifier begins.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string all() {
    while (at_ < pattern_.size()) step();
    return result_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(joined("pattern ", in_quotes(pattern_), ": expected one that PCRE2 reads like Oniguruma, got ", what));
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }

  void step() {
    const char c = pattern_[at_];
    if (c == '(') {
      open();
    } else if (c == ')') {
      if (opened_.empty()) refuse("a bracket too many");
      atom_ = opened_.back();
      opened_.pop_back();
      take(1);
    } else if (c == '{' || c == '*' || c == '+' || c == '?') {
      quantifier();
    } else {
      atom_ = result_.size();
      if (c == '[')
        a_class();
      else if (c == '\\')
        escape(/*in_class=*/false);
      else
        character();
    }
  }
  void take(std::size_t count) {
    result_.append(pattern_.substr(at_, count));
    at_ += count;
  }
  void character() {
    const int length = character_bytes(pattern_, at_);
    if (length <= 0) refuse("bytes that are no UTF-8");
    take(static_cast<std::size_t>(length));
  }
  void open() {
    opened_.push_back(result_.size());
    take(1);
    if (peek() == '*') refuse("a verb");
    if (peek() != '?') return;
    if (peek(1) == '#') refuse("a comment");
    std::size_t flags = 1;
    while (is_letter(peek(flags)) || peek(flags) == '-') ++flags;
    if (peek(flags) != ':' && peek(flags) != ')') {
      take(1);  // "?": what follows, "=", "!", "<=", ">" and names, means the same
      if (peek() == '=' || peek() == '!' || peek() == '>') return take(1);
      if (peek() == '<' && (peek(1) == '=' || peek(1) == '!')) return take(2);
      if (peek() == '<' && is_letter(peek(1))) {
        while (peek() != '>' && at_ < pattern_.size()) take(1);
        return take(1);
      }
      refuse("a group of another kind");
    }
    for (std::size_t i = 1; i < flags; ++i)
      if (peek(i) != 'i' && peek(i) != 'x' && peek(i) != '-') refuse("another option than i and x");
    take(flags);  // ":" or ")" comes next, and is no operand
    if (peek() == ':') take(1);
  }
  void quantifier() {
    const std::size_t atom = atom_;
    if (pattern_[at_] != '{') {
      take(1);
      if (peek() == '+' || peek() == '?') take(1);
      return;
    }
    std::size_t end = at_ + 1;
    while (end < pattern_.size() && (pattern_[end] == ',' || (pattern_[end] >= '0' && pattern_[end] <= '9'))) ++end;
    if (end == at_ + 1 || end >= pattern_.size() || pattern_[end] != '}') {  // a bracket that is meant literally
      atom_ = result_.size();
      result_ += "\\{";
      ++at_;
      return;
    }
    const std::string_view count = pattern_.substr(at_ + 1, end - at_ - 1);
    if (count == ",") refuse("a count without a number");
    // {,3} has a least of 0.
    result_ += count[0] == ',' ? joined("{0", count, "}") : joined("{", count, "}");
    at_ = end + 1;
    if (peek() == '+') {  // quantifies the whole of it here, and makes it possessive in PCRE2
      result_.insert(atom, "(?:");
      result_ += ")+";
      ++at_;
    } else if (peek() == '?') {
      take(1);
    }
  }
  void a_class() {
    take(1);
    if (peek() == '^') take(1);
    if (peek() == ']') {  // the first one belongs to the class
      result_ += "\\]";
      ++at_;
    }
    while (peek() != ']') {
      if (at_ >= pattern_.size()) refuse("a class without an end");
      if (peek() == '[' && peek(1) == ':') refuse("a POSIX class");
      if (peek() == '[') refuse("a class in a class");
      if (peek() == '&' && peek(1) == '&') refuse("an intersection of classes");
      if (peek() == '\\')
        escape(/*in_class=*/true);
      else
        character();
    }
    take(1);
  }
  void classes(std::string_view inside, bool in_class, bool negated) {
    if (in_class && negated) refuse("the opposite of a class in a class");
    if (!in_class) result_ += negated ? "[^" : "[";
    result_ += inside;
    if (!in_class) result_ += ']';
    at_ += 2;
  }
  void escape(bool in_class) {
    const char c = peek(1);
    if (c == '\0') refuse("a backslash at the end");
    switch (c) {
      case 's':
      case 'S': return classes(space_class, in_class, c == 'S');
      case 'w':
      case 'W': return classes(word_class, in_class, c == 'W');
      case 'd':
      case 'D': return classes("\\p{Nd}", in_class, c == 'D');
      case 'u': return code(4);
      case 'x':
        if (peek(2) == '{') break;
        return code(2);
      case 'b':
        if (in_class) break;
        result_ +=
            joined("(?:(?<=[", word_class, "])(?![", word_class, "])|(?<![", word_class, "])(?=[", word_class, "]))");
        at_ += 2;
        return;
      default: break;
    }
    constexpr std::string_view the_same = "pPnrtfveaAzZxb";
    const bool is_digit = c >= '0' && c <= '9';
    if ((is_letter(c) && the_same.find(c) == std::string_view::npos) || is_digit) refuse(joined("\\", c));
    take(1);
    character();
    if ((c == 'p' || c == 'P' || c == 'x') && peek() == '{') {
      while (peek() != '}' && at_ < pattern_.size()) take(1);
      take(1);
    }
  }
  /// Hexadecimal digits of a code point.
  void code(std::size_t digits) {
    for (std::size_t i = 0; i < digits; ++i)
      if (!is_hex(peek(2 + i))) refuse("a code of too few digits");
    if (digits == 2 && peek(2) >= '8') refuse("a byte of a character");
    result_ += joined("\\x{", pattern_.substr(at_ + 2, digits), "}");
    at_ += 2 + digits;
  }

  std::string_view pattern_;
  std::size_t at_ = 0, atom_ = 0;
  std::string result_;
  std::vector<std::size_t> opened_;
};

}  // namespace

std::string pcre_pattern(std::string_view pattern) {
  if (pattern.size() > 65536) throw Error(joined("a pattern: expected at most 65536 bytes, got ", pattern.size()));
  return Translator(pattern).all();
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !is_letter(c) && !(c >= '0' && c <= '9')) {
      constexpr std::string_view digits = "0123456789abcdef";
      pattern +=
          joined("\\x{", digits[static_cast<unsigned char>(c) / 16], digits[static_cast<unsigned char>(c) % 16], "}");
    } else {
      pattern += c;
    }
  }
  return pattern;
}

struct Pattern::Code {
  pcre2_code* code;

  explicit Code(const std::string& text) {
    int error = 0;
    PCRE2_SIZE at = 0;
    // Lines end where Oniguruma's do, and "$" is the end of any of them.
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, nullptr);
    if (code != nullptr) return;
    std::array<PCRE2_UCHAR, 128> sentence{};
    pcre2_get_error_message(error, sentence.data(), sentence.size());
    throw Error(joined("pattern ", in_quotes(text), ": expected a regular expression, got one with an error: ",
                       reinterpret_cast<const char*>(sentence.data())));
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Pattern::Pattern(const std::string& text) : code_(std::make_unique<const Code>(text)) {}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

struct Pattern::Matches::State {
  const pcre2_code* code;
  std::string_view text;
  std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match;
  std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context;
  std::size_t at = 0;
  bool was_found = false;
};

Pattern::Matches::Matches(const Pattern& pattern, std::string_view text)
    : state_(new State{pattern.code_->code,
                       text,
                       {pcre2_match_data_create_from_pattern(pattern.code_->code, nullptr), pcre2_match_data_free},
                       {pcre2_match_context_create(nullptr), pcre2_match_context_free}}) {
  if (state_->match == nullptr || state_->context == nullptr) throw std::bad_alloc();
  // A run of spaces is walked to its end and back; a pattern that does much more than that gives up.
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  pcre2_set_match_limit(state_->context.get(),
                        static_cast<std::uint32_t>(std::min<std::uint64_t>(most, 10'000'000 + 4 * text.size())));
  pcre2_set_heap_limit(state_->context.get(), 512 * 1024);  // KiB
}
Pattern::Matches::~Matches() = default;

bool Pattern::Matches::next(Span* span) {
  State& s = *state_;
  while (s.at <= s.text.size()) {
    const int count = pcre2_match(s.code, reinterpret_cast<PCRE2_SPTR>(s.text.data()), s.text.size(), s.at,
                                  PCRE2_NO_UTF_CHECK, s.match.get(), s.context.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count == PCRE2_ERROR_MATCHLIMIT || count == PCRE2_ERROR_DEPTHLIMIT || count == PCRE2_ERROR_HEAPLIMIT)
      throw Error("a text is not split into pieces: the tokenizer's pattern takes too many steps on it");
    if (count < 0) throw Error(joined("a text is not split into pieces: error ", count, " of PCRE2"));
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(s.match.get());
    *span = {ends[0], std::max(ends[0], ends[1])};
    const bool is_empty = span->begin == span->end;
    const bool repeats = is_empty && s.was_found && span->begin == s.at;
    s.at = span->end;
    s.was_found = true;
    if (is_empty) {  // goes on behind the next character
      const int length = s.at < s.text.size() ? character_bytes(s.text, s.at) : 1;
      s.at += static_cast<std::size_t>(length > 0 ? length : 1);
      s.was_found = false;
    }
    if (!repeats) return true;
  }
  s.at = s.text.size() + 1;
  return false;
}

}  // namespace bie::text
