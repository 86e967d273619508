#include "text/charsmap.h"

#include <cstring>

#include "bie/formats/error.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::joined;

std::uint32_t four_bytes(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
  return value;
}

std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  if (bytes.size() < 4) throw Error(joined("precompiled_charsmap: expected at least 4 bytes, got ", bytes.size()));
  const std::uint32_t size = four_bytes(bytes, 0);
  if (size > bytes.size() - 4 || size % 4 != 0 || size == 0)
    throw Error(
        joined("precompiled_charsmap: expected units of 4 bytes within ", bytes.size() - 4, " bytes, got ", size));
  for (std::size_t at = 4; at < 4 + static_cast<std::size_t>(size); at += 4) units_.push_back(four_bytes(bytes, at));
  texts_ = bytes.substr(4 + static_cast<std::size_t>(size));
}

Charsmap::Rule Charsmap::find(std::string_view text, bool shortest) const {
  Rule rule;
  std::uint32_t at = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint32_t byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size()) break;
    const std::uint32_t unit = units_[at];
    if ((unit & 0x800000ff) != byte) break;
    at ^= offset_of(unit);
    if ((unit & 0x100) == 0) continue;
    if (at >= units_.size()) break;
    const std::uint32_t place = units_[at] & 0x7fffffff;
    if (place >= texts_.size()) continue;
    rule = {i + 1, std::string_view(texts_).substr(place, std::strlen(texts_.c_str() + place))};
    if (shortest) break;
  }
  return rule;
}

std::string base64_bytes(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) throw Error("precompiled_charsmap: expected base64, got another character");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

}  // namespace bie::text
