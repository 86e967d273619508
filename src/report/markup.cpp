#include "report/markup.h"

#include <cstddef>

#include "report/characters.h"

namespace bie::report {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_bytes(text);
    if (length == 0) {
      safe += replacement;
    } else if (text[0] == '&') {
      safe += "&amp;";
    } else if (text[0] == '<') {
      safe += "&lt;";
    } else if (text[0] == '>') {
      safe += "&gt;";
    } else if (text[0] == '"') {
      safe += "&quot;";
    } else {
      safe += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return safe;
}

void Markup::start(std::string_view tag, Attributes attributes) {
  text_ += '<';
  text_ += tag;
  for (const auto& [name, value] : attributes) {
    text_ += ' ';
    text_ += name;
    text_ += "=\"" + escaped(value) + '"';
  }
}

Markup& Markup::open(std::string_view tag, Attributes attributes) {
  start(tag, attributes);
  text_ += '>';
  open_.emplace_back(tag);
  return *this;
}

Markup& Markup::close() {
  text_ += "</" + open_.back() + '>';
  open_.pop_back();
  return *this;
}

Markup& Markup::text(std::string_view text) {
  text_ += escaped(text);
  return *this;
}

Markup& Markup::element(std::string_view tag, Attributes attributes, std::string_view text) {
  return open(tag, attributes).text(text).close();
}

Markup& Markup::single(std::string_view tag, Attributes attributes) {
  start(tag, attributes);
  text_ += "/>";
  return *this;
}

std::string Markup::finish() {
  while (!open_.empty()) close();
  return std::move(text_);
}

}  // namespace bie::report
