// Regular expressions that cut texts, by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace bie::text {

/// Unicode's White_Space as the inside of a class: PCRE2's own \s has U+180E besides.
inline constexpr std::string_view space_class =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

/// A pattern of tokenizer.json, in the syntax of Oniguruma, as PCRE2 reads it.
/// @throws formats::Error for what the two read differently: intersections and classes in classes, \h, \G, \K, (?m).
std::string pcre_pattern(std::string_view pattern);
/// The pattern of a text that is meant literally.
std::string literal_pattern(std::string_view text);

/// Never changes; threads share it.
class Pattern {
 public:
  /// @param text  UTF-8, as PCRE2 reads it. @throws formats::Error: it is no pattern.
  explicit Pattern(const std::string& text);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  struct Span {
    std::size_t begin, end;
  };
  /// Matches in a text of valid UTF-8, one after the other; an empty one is not found where the one before it ended.
  class Matches {
   public:
    Matches(const Pattern& pattern, std::string_view text);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;
    /// Whether there is another one. @throws formats::Error where the pattern takes too many steps or too much memory.
    bool next(Span* span);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  std::unique_ptr<const Code> code_;
};

}  // namespace bie::text
