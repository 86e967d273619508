// SentencePiece's precompiled_charsmap: which texts become which before they are cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bie::text {

/// A double array of the texts, and behind it what they become, each with a zero byte at its end.
/// Source: Aoe 1989, "An efficient digital search algorithm by using a double-array structure"; the units are Darts'.
class Charsmap {
 public:
  /// @throws formats::Error: the sizes contradict each other.
  explicit Charsmap(std::string_view bytes);

  struct Rule {
    std::size_t size = 0;  ///< bytes that it replaces; 0: there is none
    std::string_view with;
  };
  /// The rules of the longest and the shortest beginning of a text.
  Rule longest(std::string_view text) const { return find(text, /*shortest=*/false); }
  Rule shortest(std::string_view text) const { return find(text, /*shortest=*/true); }

 private:
  Rule find(std::string_view text, bool shortest) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

/// The bytes that a text in base64 stands for. @throws formats::Error for other characters.
std::string base64_bytes(std::string_view text);

}  // namespace bie::text
