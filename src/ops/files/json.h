// JSON for Python to read, written without a library: the operators are built where there is none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace bie::ops {

/// A JSON string. A byte that is no UTF-8 becomes the lone surrogate that Python's surrogateescape gives it.
std::string json_text(std::string_view text);
/// Accepts what Python's json accepts, NaN and Infinity included.
std::string json_number(double value);

/// The parts of a list or an object, put together.
class JsonList {
 public:
  explicit JsonList(char open) : text_(1, open) {}
  JsonList& add(std::string_view part) {
    if (text_.size() > 1) text_ += ',';
    text_ += part;
    return *this;
  }
  JsonList& add(std::string_view key, std::string_view part) {
    add(json_text(key));
    text_ += ':';
    text_ += part;
    return *this;
  }
  std::string close() { return std::move(text_ += text_[0] == '[' ? ']' : '}'); }

 private:
  std::string text_;
};

}  // namespace bie::ops
