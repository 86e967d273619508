#include "ops/files/json.h"

#include <cmath>
#include <cstdio>

namespace bie::ops {
namespace {

/// Bytes of the UTF-8 character at the front; 0 where there is none.
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xc2 ? 0
                           : first < 0xe0 ? 2
                           : first < 0xf0 ? 3
                           : first < 0xf5 ? 4
                                          : 0;
  if (size == 0 || size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Longer than need be, a surrogate, or beyond Unicode.
  if (size > 2) {
    const unsigned second = byte(1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f))
      return 0;
  }
  return size;
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string json = "\"";
  char escape[8];
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t size = character(text);
    if (size == 0 || first < 0x20 || first == '"' || first == '\\') {
      std::snprintf(escape, sizeof escape, "\\u%04x", size == 0 ? 0xdc00 + first : first);
      json += escape;
      text.remove_prefix(1);
    } else {
      json += text.substr(0, size);
      text.remove_prefix(size);
    }
  }
  return json += '"';
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  std::string number = text;
  return number.find_first_of(".e") == std::string::npos ? number + ".0" : number;
}

}  // namespace bie::ops
