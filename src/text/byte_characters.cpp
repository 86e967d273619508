#include "text/byte_characters.h"

#include <array>

#include "text/characters.h"

namespace bie::text {
namespace {

struct Table {
  std::array<std::string, 256> character;
  std::array<int, 0x144> byte{};  // -1: none

  Table() {
    byte.fill(-1);
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      const unsigned code = printable ? b : next++;
      character[b] = utf8_of(code);
      byte[code] = static_cast<int>(b);
    }
  }
};

const Table& table() {
  static const Table the_table;
  return the_table;
}

}  // namespace

std::string characters_of_bytes(std::string_view bytes) {
  std::string characters;
  for (const char c : bytes) characters += table().character[static_cast<unsigned char>(c)];
  return characters;
}

bool bytes_of_characters(std::string_view characters, std::string* bytes) {
  bytes->clear();
  for (std::size_t at = 0; at < characters.size();) {
    const int length = character_bytes(characters, at);
    if (length <= 0) return false;
    const char32_t code = code_point(characters, at, length);
    if (code >= table().byte.size() || table().byte[code] < 0) return false;
    *bytes += static_cast<char>(table().byte[code]);
    at += static_cast<std::size_t>(length);
  }
  return true;
}

}  // namespace bie::text
