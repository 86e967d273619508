// The sentence about a file at fault: what it is, where it lies, what is wrong.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

namespace bie::io {

/// @param kind  what sentences call such a file, e.g. "safetensors file".
template <class... Parts>
[[noreturn]] void fail_file(const std::string& kind, const std::string& path, const Parts&... parts) {
  C10_THROW_ERROR(ValueError, c10::str(kind, " ", path, ": ", parts...));
}

/// A name from a file for use in a sentence: one line, not too long.
inline std::string in_quotes(std::string_view name) {
  constexpr std::size_t longest = 100;
  std::string text = "\"";
  for (const char c : name.substr(0, longest)) text += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return text + (name.size() > longest ? "...\"" : "\"");
}

}  // namespace bie::io
