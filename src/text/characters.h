// Code points of a text, and the classes of them that tokenizers ask for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace bie::text {

/// The code point of the character of `bytes` bytes that begins at `at`; see character_bytes.
char32_t code_point(std::string_view text, std::size_t at, int bytes);
void append_character(std::string* text, char32_t code);

/// Calls take(code, character) for each character, and take(no_character, byte) for each byte that belongs to none.
inline constexpr char32_t no_character = 0xffffffff;
template <class Take>
void for_each_character(std::string_view text, const Take& take) {
  for (std::size_t at = 0; at < text.size();) {
    const int length = character_bytes(text, at);
    const auto size = static_cast<std::size_t>(length > 0 ? length : 1);
    take(length > 0 ? code_point(text, at, length) : no_character, text.substr(at, size));
    at += size;
  }
}

// no_character is in none of these classes.
bool is_space(char32_t code);        ///< White_Space
bool is_number(char32_t code);       ///< N
bool is_punctuation(char32_t code);  ///< P, and the signs of ASCII
bool is_mark(char32_t code);         ///< M
bool is_nonspacing(char32_t code);   ///< Mn
bool is_other(char32_t code);        ///< C, unassigned ones left out
bool is_word(char32_t code);         ///< letters, marks, decimal digits and connectors
bool is_han(char32_t code);          ///< the blocks that BERT puts spaces around

/// Bytes of the spaces at the beginning or the end of a text.
std::size_t spaces_before(std::string_view text);
std::size_t spaces_behind(std::string_view text);

/// The bytes of the grapheme cluster that begins at `at`. Source: UAX #29, extended clusters.
std::size_t grapheme_bytes(std::string_view text, std::size_t at);

/// Small letters, each by itself; U+0130 becomes two code points.
std::string lower_case(std::string_view text);

enum class Form { nfc, nfkc, nfd, nfkd };
/// The normal form of all characters; bytes that are no UTF-8 stay. Time is n log n. Source: UAX #15.
std::string normal_form(std::string_view text, Form form);

}  // namespace bie::text
