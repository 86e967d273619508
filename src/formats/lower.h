// Words as they are compared: without capitals.
#pragma once

#include <algorithm>
#include <string>

namespace bie::formats {

/// A to Z as a to z; other bytes as they are.
inline std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

}  // namespace bie::formats
