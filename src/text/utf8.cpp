#include "text/utf8.h"

#include "bie/text/tokenizer.h"

namespace bie::text {

std::string CharacterStream::put(std::string_view bytes) {
  waiting_ += bytes;
  std::size_t whole = 0;
  while (whole < waiting_.size()) {
    const int length = character_bytes(waiting_, whole);
    if (length < 0) break;
    whole += static_cast<std::size_t>(length == 0 ? 1 : length);
  }
  std::string shown = waiting_.substr(0, whole);
  waiting_.erase(0, whole);
  return shown;
}

std::string CharacterStream::end() {
  std::string shown;
  shown.swap(waiting_);
  return shown;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  for (std::size_t at = 0; at < text.size();) {
    const int length = character_bytes(text, at);
    if (length > 0)
      valid += text.substr(at, static_cast<std::size_t>(length));
    else
      valid += "\xef\xbf\xbd";
    at += static_cast<std::size_t>(length > 0 ? length : 1);
  }
  return valid;
}

}  // namespace bie::text
