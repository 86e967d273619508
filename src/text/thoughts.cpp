#include "bie/text/thoughts.h"

#include <algorithm>

namespace bie::text {
namespace {

constexpr std::string_view opens = "<think>", closes = "</think>";

/// Bytes at the end of the text that begin the mark.
std::size_t begun(std::string_view text, std::string_view mark) {
  std::size_t n = std::min(mark.size() - 1, text.size());
  while (text.substr(text.size() - n) != mark.substr(0, n)) --n;
  return n;
}

}  // namespace

void ThoughtStream::tell(std::string_view text, std::vector<Part>* parts) {
  if (is_behind_mark_) {
    const std::size_t first = text.find_first_not_of("\r\n");
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    is_behind_mark_ = false;
  }
  if (!text.empty()) parts->push_back({std::string(text), is_thought_});
}

std::vector<ThoughtStream::Part> ThoughtStream::put(std::string_view text) {
  held_ += text;
  std::vector<Part> parts;
  for (;;) {
    const std::string_view mark = is_thought_ ? closes : opens;
    const std::size_t at = held_.find(mark);
    const std::size_t told = at != std::string::npos ? at : held_.size() - begun(held_, mark);
    tell(std::string_view(held_).substr(0, told), &parts);
    held_.erase(0, told);
    if (at == std::string::npos) return parts;
    held_.erase(0, mark.size());
    is_thought_ = !is_thought_;
    is_behind_mark_ = true;
  }
}

std::vector<ThoughtStream::Part> ThoughtStream::end() {
  std::vector<Part> parts;
  tell(held_, &parts);
  held_.clear();
  return parts;
}

bool ends_in_thought(std::string_view prompt) {
  const std::size_t open = prompt.rfind(opens), close = prompt.rfind(closes);
  return open != std::string_view::npos && (close == std::string_view::npos || close < open);
}

}  // namespace bie::text
