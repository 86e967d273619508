#include "text/chat_template/escape.h"

#include <string_view>

namespace bie::text::chat {
namespace {

std::string_view escape_of(char c) {
  switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&#34;";
    case '\'': return "&#39;";
    default: return {};
  }
}

}  // namespace

MarkedText html_escaped(Runtime& runtime, const MarkedText& text) {
  const std::string& bytes = text.bytes();
  runtime.meter.step(bytes.size() / 16);
  MarkedText result;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    const std::string_view escape = escape_of(bytes[at]);
    if (escape.empty()) continue;
    result.append(text, begin, at);
    result.append(escape, text.mark_at(at));
    begin = at + 1;
  }
  result.append(text, begin, bytes.size());
  runtime.meter.check_text(result.size());
  return result;
}

}  // namespace bie::text::chat
