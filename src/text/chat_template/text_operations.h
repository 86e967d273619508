// What Python's str does; characters keep their marks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/chat_template/characters.h"

namespace bie::text::chat {

enum class Side : std::uint8_t { left, right, both };

/// Without the characters of `chars` at its ends, or without white space.
MarkedText stripped(Runtime& runtime, const MarkedText& text, const std::optional<MarkedText>& chars, Side side);
/// Without ends of lines; with them where `keeps_ends`.
std::vector<MarkedText> lines_of(Runtime& runtime, const MarkedText& text, bool keeps_ends = false);
/// Cuts at most `most` times, all where that is negative; at white space where there is no separator.
std::vector<MarkedText> split(Runtime& runtime, const MarkedText& text, const std::optional<MarkedText>& separator,
                              std::int64_t most, Side from);
MarkedText replaced(Runtime& runtime, const MarkedText& text, const MarkedText& old, const MarkedText& with,
                    std::int64_t most);

/// Texts with a separator between them.
class Joined {
 public:
  Joined(Runtime& runtime, MarkedText separator) : runtime_(runtime), separator_(std::move(separator)) {}
  void add(const MarkedText& part);
  MarkedText take() { return std::move(text_); }

 private:
  Runtime& runtime_;
  const MarkedText separator_;
  MarkedText text_;
  bool is_first_ = true;
};

MarkedText in_case(Runtime& runtime, const MarkedText& text, Case wanted);
MarkedText swapped_case(Runtime& runtime, const MarkedText& text);
MarkedText capitalized(Runtime& runtime, const MarkedText& text);
/// str.title: a letter behind none is a title.
MarkedText titled(Runtime& runtime, const MarkedText& text);
/// The filter title: the first character behind space, hyphens and brackets.
MarkedText titled_words(Runtime& runtime, const MarkedText& text);

/// As many characters as `width` says, filled where the text is not.
MarkedText padded(Runtime& runtime, const MarkedText& text, std::int64_t width, const MarkedText& fill, Side text_side);
/// The number of a character in the text, -1 where `wanted` is not in that range of characters.
std::int64_t find_in(Runtime& runtime, const MarkedText& text, const MarkedText& wanted, const Value& begin,
                     const Value& end, bool from_right);

}  // namespace bie::text::chat
