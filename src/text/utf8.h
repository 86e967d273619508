// UTF-8 as Unicode defines it: no surrogates, no longer forms than needed, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bie::text {

/// Bytes of the character that begins at `at`; 0 where no character begins there, -1 where the text ends inside one.
inline int character_bytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const int length = first >= 0xc2 && first <= 0xdf   ? 2
                     : (first & 0xf0) == 0xe0         ? 3
                     : first >= 0xf0 && first <= 0xf4 ? 4
                                                      : 0;
  if (length == 0) return 0;
  for (int i = 1; i < length; ++i) {
    if (at + static_cast<std::size_t>(i) >= text.size()) return -1;
    unsigned least = 0x80, most = 0xbf;
    if (i == 1 && first == 0xe0) least = 0xa0;
    if (i == 1 && first == 0xed) most = 0x9f;
    if (i == 1 && first == 0xf0) least = 0x90;
    if (i == 1 && first == 0xf4) most = 0x8f;
    const unsigned next = byte(at + static_cast<std::size_t>(i));
    if (next < least || next > most) return 0;
  }
  return length;
}

/// A code point below U+10000 as bytes.
inline std::string utf8_of(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace bie::text
