#include "text/chat_template/search.h"

#include <cstring>

namespace bie::text::chat {

std::size_t find_first(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  // std::string_view::find takes the product of both sizes at worst; memmem of glibc and musl takes their sum.
  const void* const found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last(Runtime& runtime, std::string_view text, std::string_view wanted) {
  constexpr std::size_t short_size = 64;
  if (wanted.size() <= short_size) return text.rfind(wanted);
  std::size_t last = std::string_view::npos;
  for (std::size_t at = find_first(text, wanted); at != std::string_view::npos; at = find_first(text, wanted, at + 1)) {
    runtime.meter.step(wanted.size() / 16);
    last = at;
  }
  return last;
}

}  // namespace bie::text::chat
