#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "text/chat_template/characters.h"
#include "text/chat_template/lines.h"
#include "text/chat_template/string_literal.h"
#include "text/chat_template/token.h"

namespace bie::text::chat {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// Line ends become \n, and one at the end of the source is left out.
std::string normal_lines(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normal_lines(source)) {}

  std::vector<Token> all() {
    while (at_ < text_.size()) outside();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { refuse_at(line_, what); }

  bool has(std::string_view word) const { return text_.compare(at_, word.size(), word) == 0; }
  bool has_at(std::size_t at, std::string_view word) const { return text_.compare(at, word.size(), word) == 0; }

  /// The end of the white space that begins there.
  std::size_t behind_space(std::size_t at) const {
    while (at < text_.size()) {
      const std::size_t next = next_character(text_, at);
      if (!is_space(code_of(std::string_view(text_).substr(at, next - at)))) break;
      at = next;
    }
    return at;
  }

  void move_to(std::size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    if (at > at_) begins_line_ = text_[at - 1] == '\n';
    at_ = at;
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  /// Text before a tag. '-' strips its end; a tag that is the first of its line strips the line's beginning.
  void add_data(std::size_t end, char strip, bool strips_line) {
    std::size_t stop = end;
    if (strip == '-') {
      while (stop > at_) {
        const std::size_t before = previous_character(text_, stop);
        if (!is_space(code_of(std::string_view(text_).substr(before, stop - before)))) break;
        stop = before;
      }
    } else if (strip != '+' && strips_line) {
      const std::size_t newline = std::string_view(text_).substr(at_, end - at_).rfind('\n');
      const bool has_newline = newline != std::string_view::npos;
      const std::size_t line = has_newline ? at_ + newline + 1 : at_;
      if ((has_newline || begins_line_) && behind_space(line) >= end) stop = line;
    }
    if (stop > at_) add(TokenKind::data, text_.substr(at_, stop - at_));
    move_to(end);
  }

  char sign_at(std::size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : '\0';
  }

  /// Text up to the next tag, and that tag.
  void outside() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) {
        tag = std::string::npos;
        break;
      }
      if (std::strchr("{%#", text_[tag + 1]) != nullptr && text_[tag + 1] != '\0') break;
    }
    if (tag == std::string::npos) {
      add(TokenKind::data, text_.substr(at_));
      return move_to(text_.size());
    }
    const char kind = text_[tag + 1], strip = sign_at(tag + 2);
    const std::size_t inside = tag + 2 + (strip != '\0' ? 1 : 0);
    add_data(tag, strip, kind != '{');
    if (kind == '#') return comment(inside);
    if (kind == '{') {
      add(TokenKind::variable_begin, "");
      move_to(inside);
      return tag_tokens("}}", TokenKind::variable_end);
    }
    if (const std::size_t raw = raw_begin(inside)) return raw_text(raw);
    add(TokenKind::block_begin, "");
    move_to(inside);
    tag_tokens("%}", TokenKind::block_end);
  }

  void comment(std::size_t inside) {
    const std::size_t end = text_.find("#}", inside);
    if (end == std::string::npos) fail("missing end of comment tag");
    const char strip = end > inside ? text_[end - 1] : '\0';
    move_to(behind_end(end + 2, strip, true));
  }

  /// Where text goes on behind a tag that ends there.
  std::size_t behind_end(std::size_t at, char strip, bool trims) const {
    if (strip == '-') return behind_space(at);
    return strip != '+' && trims && at < text_.size() && text_[at] == '\n' ? at + 1 : at;
  }

  /// Where the text of a raw block begins, 0 where this is none.
  std::size_t raw_begin(std::size_t at) const {
    at = behind_space(at);
    if (!has_at(at, "raw")) return 0;
    at = behind_space(at + 3);
    if (has_at(at, "-%}")) return behind_space(at + 3);
    return has_at(at, "%}") ? at + 2 : 0;
  }

  void raw_text(std::size_t begin) {
    move_to(begin);
    for (std::size_t tag = text_.find("{%", at_); tag != std::string::npos; tag = text_.find("{%", tag + 1)) {
      const char strip = sign_at(tag + 2);
      std::size_t end = behind_space(tag + 2 + (strip != '\0' ? 1 : 0));
      if (!has_at(end, "endraw")) continue;
      end = behind_space(end + 6);
      const char close = sign_at(end);
      const std::size_t bracket = end + (close != '\0' ? 1 : 0);
      if (!has_at(bracket, "%}")) continue;
      add_data(tag, strip, true);
      return move_to(behind_end(bracket + 2, close, true));
    }
    fail("missing end of raw directive");
  }

  /// Tokens up to the tag's end, which is none inside of brackets.
  void tag_tokens(std::string_view close, TokenKind kind) {
    const bool is_block = kind == TokenKind::block_end;
    brackets_.clear();
    while (at_ < text_.size()) {
      if (brackets_.empty()) {
        const char strip = has("-") || (is_block && has("+")) ? text_[at_] : '\0';
        const std::size_t bracket = at_ + (strip != '\0' ? 1 : 0);
        if (has_at(bracket, close)) {
          add(kind, "");
          return move_to(behind_end(bracket + 2, strip, is_block));
        }
      }
      const std::size_t space = behind_space(at_);
      if (space != at_)
        move_to(space);
      else
        token();
    }
  }

  void token() {
    const char c = text_[at_];
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    const std::size_t end = name_end(at_);
    if (end != at_) {
      add(TokenKind::name, text_.substr(at_, end - at_));
      return move_to(end);
    }
    sign();
  }

  std::size_t name_end(std::size_t at) const {
    while (at < text_.size()) {
      const std::size_t next = next_character(text_, at);
      const std::uint32_t code = code_of(std::string_view(text_).substr(at, next - at));
      if (code != '_' && !is_letter(code) && !is_numeric(code)) break;
      at = next;
    }
    return at;
  }

  /// The end of digits with single underscores between them; `at` where there are none.
  template <class Is>
  std::size_t digits_end(std::size_t at, const Is& is) const {
    const std::size_t begin = at;
    while (at < text_.size()) {
      const bool joins = text_[at] == '_' && at > begin && at + 1 < text_.size() && is(text_[at + 1]);
      if (!joins && !is(text_[at])) break;
      ++at;
    }
    return at;
  }

  std::size_t real_end(std::size_t begin) const {
    if (begin > 0 && text_[begin - 1] == '.') return begin;
    const std::size_t whole = digits_end(begin, is_digit);
    std::size_t end = whole;
    if (has_at(end, ".")) {
      const std::size_t fraction = digits_end(end + 1, is_digit);
      if (fraction != end + 1) end = fraction;
    }
    if (has_at(end, "e") || has_at(end, "E")) {
      const std::size_t digits = end + 1 + (sign_at(end + 1) != '\0' ? 1 : 0);
      const std::size_t exponent = digits_end(digits, is_digit);
      if (exponent != digits) end = exponent;
    }
    return end == whole ? begin : end;
  }

  void number() {
    if (const std::size_t end = real_end(at_); end != at_) {
      std::string digits = text_.substr(at_, end - at_);
      std::erase(digits, '_');
      Token token{TokenKind::real, line_, digits};
      const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), token.number);
      if (result.ec == std::errc::result_out_of_range) token.number = is_tiny(digits) ? 0 : HUGE_VAL;
      tokens_.push_back(std::move(token));
      return move_to(end);
    }
    int base = 10;
    std::size_t begin = at_, end = at_;
    const char kind = text_[at_] == '0' && at_ + 1 < text_.size() ? static_cast<char>(text_[at_ + 1] | 0x20) : '\0';
    if (kind == 'b' || kind == 'o' || kind == 'x') {
      base = kind == 'b' ? 2 : kind == 'o' ? 8 : 16;
      begin = at_ + 2 + (has_at(at_ + 2, "_") ? 1 : 0);
      end = digits_end(begin, [&](char c) { return base == 16 ? is_hex(c) : c >= '0' && c < '0' + base; });
    }
    if (end == begin) {
      base = 10;
      begin = at_;
      const bool is_zero = text_[at_] == '0';
      end = digits_end(at_, [&](char c) { return is_zero ? c == '0' : is_digit(c); });
    }
    std::string digits = text_.substr(begin, end - begin);
    std::erase(digits, '_');
    Token token{TokenKind::integer, line_, digits};
    if (std::from_chars(digits.data(), digits.data() + digits.size(), token.whole, base).ec != std::errc())
      fail("expected an integer of 64 bits, got a larger one");
    tokens_.push_back(std::move(token));
    move_to(end);
  }

  /// Whether a number that no double holds is below them.
  static bool is_tiny(const std::string& digits) {
    const std::size_t e = digits.find_first_of("eE");
    return e != std::string::npos && digits[e + 1] == '-';
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail(formats::joined("unexpected character ", quote));
    add(TokenKind::string, unescaped(std::string_view(text_).substr(at_ + 1, end - at_ - 1), line_));
    move_to(end + 1);
  }

  void sign() {
    constexpr std::array<std::string_view, 6> pairs = {"**", "//", "==", "!=", ">=", "<="};
    for (const std::string_view pair : pairs) {
      if (!has(pair)) continue;
      add(TokenKind::sign, std::string(pair));
      return move_to(at_ + 2);
    }
    const char c = text_[at_];
    if (c == '\0' || std::strchr("+-/*%~[](){}><=.:|,;", c) == nullptr)
      fail(formats::joined("unexpected character ",
                           formats::in_quotes(text_.substr(at_, next_character(text_, at_) - at_))));
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) fail(formats::joined("unexpected '", c, "'"));
      if (brackets_.back() != c) fail(formats::joined("unexpected '", c, "', expected '", brackets_.back(), "'"));
      brackets_.pop_back();
    }
    add(TokenKind::sign, std::string(1, c));
    move_to(at_ + 1);
  }

  const std::string text_;
  std::vector<Token> tokens_;
  std::string brackets_;  // that close those that are open
  std::size_t at_ = 0;
  int line_ = 1;
  bool begins_line_ = true;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).all(); }

}  // namespace bie::text::chat
