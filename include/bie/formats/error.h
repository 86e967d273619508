// The sentence about a file at fault: what it is, where it lies, what is wrong.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bie::formats {

/// A file that cannot be read or written; what() is one sentence that names it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// "[2, 3]"
inline std::string listed(const std::vector<std::int64_t>& sizes) {
  std::string text = "[";
  for (const std::int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// The parts one after the other.
template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// @param kind  what sentences call such a file, e.g. "safetensors file".
template <class... Parts>
[[noreturn]] void fail_file(const std::string& kind, const std::string& path, const Parts&... parts) {
  throw Error(joined(kind, " ", path, ": ", parts...));
}

/// A name from a file for use in a sentence: one line, not too long.
inline std::string in_quotes(std::string_view name) {
  constexpr std::size_t longest = 100;
  std::string text = "\"";
  for (const char c : name.substr(0, longest)) text += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return text + (name.size() > longest ? "...\"" : "\"");
}

}  // namespace bie::formats
