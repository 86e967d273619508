// A text whose characters know whether the template wrote them or a value of the input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bie::text::chat {

/// UTF-8. A mark of true means that the template wrote the byte; bytes of one character have one mark.
class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string bytes, bool mark) : bytes_(std::move(bytes)), mark_(mark) {}

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool mark_at(std::size_t byte) const;

  void append(std::string_view bytes, bool mark);
  void append(const MarkedText& text, std::size_t begin, std::size_t end);
  void append(const MarkedText& text) { append(text, 0, text.size()); }
  MarkedText part(std::size_t begin, std::size_t end) const;

  /// Calls take(begin, end, mark) for each run of one mark in [begin, end).
  template <class Take>
  void runs(std::size_t begin, std::size_t end, const Take& take) const {
    std::size_t flip = static_cast<std::size_t>(std::upper_bound(flips_.begin(), flips_.end(), begin) - flips_.begin());
    while (begin < end) {
      const std::size_t stop = flip < flips_.size() ? std::min(flips_[flip], end) : end;
      take(begin, stop, mark_ != (flip % 2 == 1));
      begin = stop;
      ++flip;
    }
  }

 private:
  std::string bytes_;
  bool mark_ = false;               // of the first byte
  std::vector<std::size_t> flips_;  // where the mark changes, rising
};

}  // namespace bie::text::chat
