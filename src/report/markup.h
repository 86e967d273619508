// HTML that an XML parser accepts too, and that no value can break out of.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bie::report {

/// `text` without markup: & < > and " become entities, what is no UTF-8 or no character of XML becomes U+FFFD.
std::string escaped(std::string_view text);

/// Grows by whole elements: what is opened is closed in order, and every text and attribute is escaped.
class Markup {
 public:
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string>>;

  Markup& open(std::string_view tag, Attributes attributes = {});
  Markup& close();
  Markup& text(std::string_view text);
  Markup& element(std::string_view tag, Attributes attributes = {}, std::string_view text = {});
  /// An element of HTML that has no end tag, such as img.
  Markup& single(std::string_view tag, Attributes attributes);

  /// All elements, the open ones closed.
  std::string finish();

 private:
  void start(std::string_view tag, Attributes attributes);

  std::string text_;
  std::vector<std::string> open_;
};

}  // namespace bie::report
