#include "text/chat_template/marked_text.h"

namespace bie::text::chat {

bool MarkedText::mark_at(std::size_t byte) const {
  const auto flips = std::upper_bound(flips_.begin(), flips_.end(), byte) - flips_.begin();
  return mark_ != (flips % 2 == 1);
}

void MarkedText::append(std::string_view bytes, bool mark) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    mark_ = mark;
    flips_.clear();
  } else if ((mark_ != (flips_.size() % 2 == 1)) != mark) {
    flips_.push_back(bytes_.size());
  }
  bytes_ += bytes;
}

void MarkedText::append(const MarkedText& text, std::size_t begin, std::size_t end) {
  text.runs(begin, end, [&](std::size_t from, std::size_t to, bool mark) {
    append(std::string_view(text.bytes_).substr(from, to - from), mark);
  });
}

MarkedText MarkedText::part(std::size_t begin, std::size_t end) const {
  MarkedText result;
  result.append(*this, begin, end);
  return result;
}

}  // namespace bie::text::chat
