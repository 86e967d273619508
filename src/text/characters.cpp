#include "text/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bie/formats/error.h"

namespace bie::text {
namespace {

utf8proc_category_t category(char32_t code) {
  return code == no_character ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_between(char32_t code, char32_t least, char32_t most) { return code >= least && code <= most; }

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

/// The normal form of characters alone.
void append_normal_form(std::string_view text, Form form, std::string* result) {
  std::vector<utf8proc_int32_t> codes;
  const int options =
      UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (form == Form::nfkc || form == Form::nfkd ? UTF8PROC_COMPAT : 0);
  std::array<utf8proc_int32_t, 32> parts{};  // no character has more than 18
  for_each_character(text, [&](char32_t code, std::string_view) {
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(),
                                               static_cast<utf8proc_option_t>(options), &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size()))
      throw formats::Error("a text is not normalised: a character has too many parts");
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  });
  // Marks between two characters of class 0 are ordered by their classes.
  for (auto at = codes.begin(); at != codes.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, codes.end(), [](utf8proc_int32_t code) { return combining_class(code) == 0; });
    std::stable_sort(at, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
  auto count = static_cast<utf8proc_ssize_t>(codes.size());
  if (form == Form::nfc || form == Form::nfkc)
    count = utf8proc_normalize_utf32(codes.data(), count,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_character(result, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
}

}  // namespace

char32_t code_point(std::string_view text, std::size_t at, int bytes) {
  const auto byte = [&](std::size_t i) -> char32_t { return static_cast<unsigned char>(text[at + i]); };
  if (bytes == 1) return byte(0);
  if (bytes == 2) return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
  if (bytes == 3) return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
}

void append_character(std::string* text, char32_t code) {
  if (code < 0x10000) {
    *text += utf8_of(static_cast<unsigned>(code));
    return;
  }
  *text += static_cast<char>(0xf0 | code >> 18);
  *text += static_cast<char>(0x80 | (code >> 12 & 0x3f));
  *text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
  *text += static_cast<char>(0x80 | (code & 0x3f));
}

bool is_space(char32_t code) {
  return code == 0x20 || is_between(code, 0x9, 0xd) || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         is_between(code, 0x2000, 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

bool is_number(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return is_between(category(code), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return is_between(code, '!', '/') || is_between(code, ':', '@') || is_between(code, '[', '`') ||
           is_between(code, '{', '~');
  return is_between(category(code), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_mark(char32_t code) {
  return code >= 0x300 && is_between(category(code), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_nonspacing(char32_t code) { return code >= 0x300 && category(code) == UTF8PROC_CATEGORY_MN; }

bool is_other(char32_t code) {
  if (code < 0x80) return code < 0x20 || code == 0x7f;
  return is_between(category(code), UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}

bool is_word(char32_t code) {
  if (code < 0x80)
    return is_between(code, '0', '9') || is_between(code, 'A', 'Z') || code == '_' || is_between(code, 'a', 'z');
  const utf8proc_category_t c = category(code);
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_ND) || c == UTF8PROC_CATEGORY_PC ||
         c == UTF8PROC_CATEGORY_NL || code == 0x200c || code == 0x200d ||
         // Letters in circles and squares are alphabetic.
         is_between(code, 0x24b6, 0x24e9) || is_between(code, 0x1f130, 0x1f149) || is_between(code, 0x1f150, 0x1f169) ||
         is_between(code, 0x1f170, 0x1f189);
}

bool is_han(char32_t code) {
  return is_between(code, 0x4e00, 0x9fff) || is_between(code, 0x3400, 0x4dbf) || is_between(code, 0x20000, 0x2a6df) ||
         is_between(code, 0x2a700, 0x2b73f) || is_between(code, 0x2b740, 0x2b81f) ||
         is_between(code, 0x2b920, 0x2ceaf) || is_between(code, 0xf900, 0xfaff) || is_between(code, 0x2f800, 0x2fa1f);
}

std::size_t spaces_before(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const int length = character_bytes(text, at);
    if (length <= 0 || !is_space(code_point(text, at, length))) break;
    at += static_cast<std::size_t>(length);
  }
  return at;
}

std::size_t spaces_behind(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && end - begin < 3 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    const int length = character_bytes(text, begin);
    if (length != static_cast<int>(end - begin) || !is_space(code_point(text, begin, length))) break;
    end = begin;
  }
  return text.size() - end;
}

std::size_t grapheme_bytes(std::string_view text, std::size_t at) {
  int length = character_bytes(text, at);
  if (length <= 0) return 1;
  utf8proc_int32_t state = 0;
  auto code = static_cast<utf8proc_int32_t>(code_point(text, at, length));
  std::size_t end = at + static_cast<std::size_t>(length);
  while (end < text.size()) {
    length = character_bytes(text, end);
    if (length <= 0) break;
    const auto next = static_cast<utf8proc_int32_t>(code_point(text, end, length));
    if (utf8proc_grapheme_break_stateful(code, next, &state)) break;
    code = next;
    end += static_cast<std::size_t>(length);
  }
  return end - at;
}

std::string lower_case(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view character) {
    if (code < 0x80)
      result += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    else if (code == 0x130)
      result += "i\xcc\x87";
    else if (code == no_character)
      result += character;
    else
      append_character(&result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  });
  return result;
}

std::string normal_form(std::string_view text, Form form) {
  // No character below this one changes or joins the one before it.
  const char32_t first = form == Form::nfc ? 0x300 : 0x80;
  std::string result;
  std::size_t from = 0, before = 0;  // the character at `before` is the last one seen, and may take what follows
  for (std::size_t at = 0; at < text.size();) {
    const int length = character_bytes(text, at);
    if (length <= 0 || code_point(text, at, length) < first) {
      before = at;
      at += static_cast<std::size_t>(length > 0 ? length : 1);
      continue;
    }
    std::size_t begin = before >= from && character_bytes(text, before) > 0 ? before : at, end = at;
    while (end < text.size()) {
      const int next = character_bytes(text, end);
      if (next <= 0 || code_point(text, end, next) < first) break;
      end += static_cast<std::size_t>(next);
    }
    result.append(text.substr(from, begin - from));
    append_normal_form(text.substr(begin, end - begin), form, &result);
    from = at = before = end;
  }
  if (from == 0) return std::string(text);
  return result.append(text.substr(from));
}

}  // namespace bie::text
