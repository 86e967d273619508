#include "text/sentence_normalizer.h"

#include <utility>

#include "text/sentence_pieces.h"
#include "text/utf8.h"

namespace bie::text {

SentenceNormalizer::SentenceNormalizer(const Vocabulary& v, const std::vector<std::string>& names)
    : adds_space_(v.adds_space), removes_spaces_(v.removes_spaces) {
  if (!v.charsmap.empty()) charsmap_.emplace(v.charsmap);
  if (!charsmap_ && !removes_spaces_) return;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (v.kinds[i] == Vocabulary::Kind::user_defined) user_defined_.add(names[i], {static_cast<std::int32_t>(i)});
}

std::string SentenceNormalizer::normalized(std::string_view text, bool*) const {
  std::string result;
  if (!charsmap_ && !removes_spaces_) {
    result = with_marks(text);
    return adds_space_ ? std::string(space_mark).append(result) : result;
  }
  // A character or more, and what becomes of it.
  const auto next = [&](std::size_t at) -> std::pair<std::size_t, std::string_view> {
    const std::string_view rest = text.substr(at);
    if (const std::size_t size = user_defined_.match_at(rest); size > 0) return {size, rest.substr(0, size)};
    if (charsmap_)
      if (const Charsmap::Rule rule = charsmap_->longest(rest); rule.size > 0) return {rule.size, rule.with};
    const int length = character_bytes(text, at);
    const auto size = static_cast<std::size_t>(length > 0 ? length : 1);
    return {size, rest.substr(0, size)};
  };
  std::size_t at = 0;
  while (removes_spaces_ && at < text.size()) {
    const auto [size, with] = next(at);
    if (with != " ") break;
    at += size;
  }
  if (at == text.size()) return result;
  if (adds_space_) result = space_mark;
  bool was_space = removes_spaces_;
  while (at < text.size()) {
    auto [size, with] = next(at);
    while (was_space && !with.empty() && with.front() == ' ') with.remove_prefix(1);
    result += with_marks(with);
    if (!with.empty()) was_space = with.back() == ' ';
    was_space = was_space && removes_spaces_;
    at += size;
    check_growth(result.size(), text.size());
  }
  while (removes_spaces_ && result.size() >= space_mark.size() &&
         std::string_view(result).substr(result.size() - space_mark.size()) == space_mark)
    result.resize(result.size() - space_mark.size());
  return result;
}

}  // namespace bie::text
