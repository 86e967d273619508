#include "text/chat_template/string_literal.h"

#include <cstring>

#include "text/chat_template/characters.h"
#include "text/chat_template/lines.h"

namespace bie::text::chat {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
}

/// Reads up to `most` digits of a base from the beginning of the text.
std::uint32_t read_digits(std::string_view text, std::size_t most, int base, std::size_t& count) {
  std::uint32_t code = 0;
  for (count = 0; count < most && count < text.size() && digit_of(text[count]) < base; ++count)
    code = code * static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(digit_of(text[count]));
  return code;
}

}  // namespace

std::string unescaped(std::string_view literal, int line) {
  std::string text;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\') {
      text += literal[i];
      continue;
    }
    const char c = ++i < literal.size() ? literal[i] : '\\';
    constexpr char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    if (c == '\n') continue;
    if (const char* const found = std::strchr(names, c); found != nullptr && c != '\0') {
      text += values[found - names];
      continue;
    }
    std::size_t count = 0;
    if (c >= '0' && c <= '7') {
      text += utf8(read_digits(literal.substr(i), 3, 8, count));
      i += count - 1;
      continue;
    }
    if (c == 'N') refuse_at(line, "expected an escape of a number, got one of a name");
    const std::size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (wanted == 0) {  // Python encodes other characters before it reads escapes, so these lose their own backslash
      const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
      const std::size_t end = next_character(literal, i);
      text += '\\';
      text += is_ascii ? std::string(1, c) : escaped(code_of(literal.substr(i, end - i))).substr(1);
      i = end - 1;
      continue;
    }
    const std::uint32_t code = read_digits(literal.substr(i + 1), wanted, 16, count);
    if (count != wanted) refuse_at(line, formats::joined("expected ", wanted, " digits of an escape, got fewer"));
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      refuse_at(line, "expected an escape of a character, got another number");
    text += utf8(code);
    i += count;
  }
  return text;
}

}  // namespace bie::text::chat
