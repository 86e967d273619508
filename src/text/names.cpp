#include "text/names.h"

#include <algorithm>

#include "bie/formats/error.h"
#include "text/characters.h"

namespace bie::text {
namespace {

bool begins_with_word(std::string_view text) {
  const int length = text.empty() ? 0 : character_bytes(text, 0);
  return length > 0 && is_word(code_point(text, 0, length));
}

bool ends_with_word(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 4) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xc0) != 0x80) break;
  }
  return begins_with_word(text.substr(begin));
}

}  // namespace

void SpecialParts::add(std::size_t bytes, bool special) {
  if (bytes == 0) return;
  const std::size_t end = (ends_.empty() ? 0 : ends_.back().first) + bytes;
  if (!ends_.empty() && ends_.back().second == special)
    ends_.back().first = end;
  else
    ends_.emplace_back(end, special);
}

std::size_t SpecialParts::left(std::size_t at) const {
  const auto part = std::upper_bound(ends_.begin(), ends_.end(), at,
                                     [](std::size_t place, const auto& end) { return place < end.first; });
  return part != ends_.end() && part->second ? part->first - at : 0;
}

void Names::add(const std::string& text, const Name& name) {
  if (text.empty())
    throw formats::Error(formats::joined("expected a name of special token ", name.token, ", got none"));
  if (text.size() > longest)
    throw formats::Error(formats::joined("special token ", name.token, ": expected a name of at most ", longest,
                                         " bytes, got ", text.size()));
  const std::uint32_t node = trie_.add(text);
  if (name_of_.size() <= node) name_of_.resize(node + 1, -1);
  name_of_[node] = static_cast<std::int32_t>(names_.size());
  names_.push_back(name);
}

Names::Match Names::spread(std::string_view text, std::size_t begin, std::size_t end, std::size_t from,
                           const Name& name) {
  if (name.is_word && (begins_with_word(text.substr(end)) || ends_with_word(text.substr(0, begin))))
    return {begin, end, nullptr};
  // A name may stand in spaces that the one before it has taken.
  if (name.strips_left && from < begin) begin -= spaces_behind(text.substr(from, begin - from));
  end = std::max(end, from);
  if (name.strips_right) end += spaces_before(text.substr(end));
  return {begin, end, &name};
}

}  // namespace bie::text
