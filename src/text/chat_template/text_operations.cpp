#include "text/chat_template/text_operations.h"

#include <algorithm>
#include <set>

#include "text/chat_template/search.h"

namespace bie::text::chat {
namespace {

std::string_view character_at(std::string_view text, std::size_t at) {
  return text.substr(at, next_character(text, at) - at);
}

bool is_space_at(std::string_view text, std::size_t at) { return is_space(code_of(character_at(text, at))); }

/// Text of at most three times the size, character by character.
template <class Map>
MarkedText mapped(Runtime& runtime, const MarkedText& text, const Map& map) {
  const std::string& bytes = text.bytes();
  runtime.meter.step(bytes.size() / 16);
  MarkedText result;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t next = next_character(bytes, at);
    result.append(map(at, code_of(std::string_view(bytes).substr(at, next - at))), text.mark_at(at));
    at = next;
  }
  return result;
}

/// A sigma at the end of a word has a form of its own.
bool ends_word(std::string_view text, std::size_t at) {
  const auto is_cased = [](std::uint32_t code) { return is_upper(code) || is_lower(code); };
  const std::size_t next = next_character(text, at);
  if (next < text.size() && is_cased(code_of(character_at(text, next)))) return false;
  return at > 0 && is_cased(code_of(character_at(text, previous_character(text, at))));
}

std::string lower_at(std::string_view text, std::size_t at, std::uint32_t code) {
  return code == 0x3a3 && ends_word(text, at) ? "\xcf\x82" : in_case(code, Case::lower);
}

std::vector<MarkedText> split_at_space(const MarkedText& text, std::int64_t most, Side from) {
  const std::string& bytes = text.bytes();
  std::vector<MarkedText> parts;
  std::size_t begin = 0, end = bytes.size();
  const auto skip_left = [&](bool space) {
    std::size_t at = begin;
    while (at < end && is_space_at(bytes, at) == space) at = next_character(bytes, at);
    return at;
  };
  const auto skip_right = [&](bool space) {
    std::size_t at = end;
    while (at > begin && is_space_at(bytes, previous_character(bytes, at)) == space) at = previous_character(bytes, at);
    return at;
  };
  for (;;) {
    begin = from == Side::left ? skip_left(true) : begin;
    end = from == Side::right ? skip_right(true) : end;
    if (begin >= end) break;
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      if (from == Side::left) end = bytes.size();
      // The rest keeps its far end, without white space at its near one.
      parts.push_back(text.part(begin, end));
      break;
    }
    if (from == Side::left) {
      const std::size_t stop = skip_left(false);
      parts.push_back(text.part(begin, stop));
      begin = stop;
    } else {
      const std::size_t start = skip_right(false);
      parts.push_back(text.part(start, end));
      end = start;
    }
  }
  return parts;
}

std::vector<MarkedText> split_at(Runtime& runtime, const MarkedText& text, const std::string& separator,
                                 std::int64_t most, Side from) {
  const std::string& bytes = text.bytes();
  std::vector<MarkedText> parts;
  std::size_t begin = 0, end = bytes.size();
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    if (from == Side::left) {
      const std::size_t found = find_first(bytes, separator, begin);
      if (found == std::string::npos) break;
      parts.push_back(text.part(begin, found));
      begin = found + separator.size();
    } else {
      const std::size_t found = find_last(runtime, std::string_view(bytes).substr(0, end), separator);
      if (found == std::string::npos) break;
      parts.push_back(text.part(found + separator.size(), end));
      end = found;
    }
  }
  parts.push_back(text.part(begin, end));
  return parts;
}

}  // namespace

MarkedText stripped(Runtime& runtime, const MarkedText& text, const std::optional<MarkedText>& chars, Side side) {
  const std::string& bytes = text.bytes();
  std::set<std::string_view> set;
  if (chars)
    for (std::size_t at = 0; at < chars->size(); at = next_character(chars->bytes(), at))
      set.insert(character_at(chars->bytes(), at));
  const auto goes = [&](std::size_t at) {
    return chars ? set.contains(character_at(bytes, at)) : is_space_at(bytes, at);
  };
  std::size_t begin = 0, end = bytes.size();
  if (side != Side::right)
    while (begin < end && goes(begin)) begin = next_character(bytes, begin);
  if (side != Side::left)
    while (end > begin && goes(previous_character(bytes, end))) end = previous_character(bytes, end);
  runtime.meter.step((bytes.size() - (end - begin)) / 16);
  return text.part(begin, end);
}

std::vector<MarkedText> lines_of(Runtime& runtime, const MarkedText& text, bool keeps_ends) {
  const std::string& bytes = text.bytes();
  runtime.meter.step(bytes.size() / 16);
  std::vector<MarkedText> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t next = next_character(bytes, at);
    if (is_line_end(code_of(character_at(bytes, at)))) {
      if (bytes[at] == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.part(begin, keeps_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(text.part(begin, bytes.size()));
  return lines;
}

std::vector<MarkedText> split(Runtime& runtime, const MarkedText& text, const std::optional<MarkedText>& separator,
                              std::int64_t most, Side from) {
  if (separator && separator->empty()) refuse("empty separator");
  runtime.meter.step(text.size() / 16);
  std::vector<MarkedText> parts =
      separator ? split_at(runtime, text, separator->bytes(), most, from) : split_at_space(text, most, from);
  if (from == Side::right) std::reverse(parts.begin(), parts.end());
  runtime.meter.step(parts.size());
  return parts;
}

MarkedText replaced(Runtime& runtime, const MarkedText& text, const MarkedText& old, const MarkedText& with,
                    std::int64_t most) {
  const std::string& bytes = text.bytes();
  runtime.meter.step(bytes.size() / 16);
  MarkedText result;
  std::size_t begin = 0;
  for (std::int64_t count = 0; most < 0 || count < most; ++count) {
    std::size_t found = 0;
    if (old.empty()) {  // Python puts the text before every character and at the end
      if (begin > bytes.size() || (count > 0 && begin == bytes.size())) break;
      found = count == 0 ? 0 : next_character(bytes, begin);
    } else {
      found = find_first(bytes, old.bytes(), begin);
      if (found == std::string::npos) break;
    }
    runtime.meter.check_text(result.size() + (found - begin) + with.size());
    runtime.meter.step();
    result.append(text, begin, found);
    result.append(with);
    begin = found + old.size();
  }
  runtime.meter.check_text(result.size() + bytes.size() - begin);
  result.append(text, begin, bytes.size());
  return result;
}

void Joined::add(const MarkedText& part) {
  runtime_.meter.step(1 + part.size() / 64);
  runtime_.meter.check_text(text_.size() + separator_.size() + part.size());
  if (!is_first_) text_.append(separator_);
  is_first_ = false;
  text_.append(part);
}

MarkedText in_case(Runtime& runtime, const MarkedText& text, Case wanted) {
  return mapped(runtime, text, [&](std::size_t at, std::uint32_t code) {
    return wanted == Case::lower ? lower_at(text.bytes(), at, code) : in_case(code, wanted);
  });
}

MarkedText swapped_case(Runtime& runtime, const MarkedText& text) {
  runtime.meter.step(class_steps(text.bytes()));
  return mapped(runtime, text, [&](std::size_t at, std::uint32_t code) {
    if (is_upper(code)) return lower_at(text.bytes(), at, code);
    return is_lower(code) ? in_case(code, Case::upper) : utf8(code);
  });
}

MarkedText capitalized(Runtime& runtime, const MarkedText& text) {
  return mapped(runtime, text, [&](std::size_t at, std::uint32_t code) {
    return at == 0 ? in_case(code, Case::title) : lower_at(text.bytes(), at, code);
  });
}

MarkedText titled(Runtime& runtime, const MarkedText& text) {
  runtime.meter.step(class_steps(text.bytes()));
  bool is_inside = false;
  return mapped(runtime, text, [&](std::size_t at, std::uint32_t code) {
    std::string result = is_inside ? lower_at(text.bytes(), at, code) : in_case(code, Case::title);
    is_inside = is_upper(code) || is_lower(code) || (code >= 0x80 && is_letter(code) && result != utf8(code));
    return result;
  });
}

MarkedText titled_words(Runtime& runtime, const MarkedText& text) {
  bool is_inside = false;
  return mapped(runtime, text, [&](std::size_t at, std::uint32_t code) {
    const bool splits = is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    std::string result = is_inside && !splits ? lower_at(text.bytes(), at, code) : in_case(code, Case::upper);
    is_inside = !splits;
    return result;
  });
}

MarkedText padded(Runtime& runtime, const MarkedText& text, std::int64_t width, const MarkedText& fill,
                  Side text_side) {
  runtime.meter.step((text.size() + fill.size()) / 16);
  if (count_characters(fill.bytes()) != 1) refuse("the fill character must be exactly one character long");
  const auto count = static_cast<std::int64_t>(count_characters(text.bytes()));
  if (width <= count) return text;
  const auto missing = static_cast<std::size_t>(width - count);
  runtime.meter.check_text(missing);
  std::size_t left = text_side == Side::left ? 0 : missing;
  if (text_side == Side::both) left = missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  MarkedText result;
  for (std::size_t i = 0; i < left; ++i) result.append(fill);
  result.append(text);
  for (std::size_t i = left; i < missing; ++i) result.append(fill);
  return result;
}

std::int64_t find_in(Runtime& runtime, const MarkedText& text, const MarkedText& wanted, const Value& begin,
                     const Value& end, bool from_right) {
  const std::string& bytes = text.bytes();
  runtime.meter.step(bytes.size() / 16);
  const auto count = static_cast<std::int64_t>(count_characters(bytes));
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    if (!value.is_whole()) refuse("slice indices must be integers or None");
    return value.whole() < 0 ? std::max<std::int64_t>(0, value.whole() + count) : value.whole();
  };
  const std::int64_t from = bound(begin, 0), to = std::min(bound(end, count), count);
  if (from > to) return -1;
  const std::size_t first = offset_of(bytes, static_cast<std::size_t>(from));
  const std::string_view range =
      std::string_view(bytes).substr(first, offset_of(bytes, static_cast<std::size_t>(to)) - first);
  const std::size_t found = from_right ? find_last(runtime, range, wanted.bytes()) : find_first(range, wanted.bytes());
  if (found == std::string_view::npos) return -1;
  return from + static_cast<std::int64_t>(count_characters(range.substr(0, found)));
}

}  // namespace bie::text::chat
