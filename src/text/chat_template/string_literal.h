// A string literal's characters.
#pragma once

#include <string>
#include <string_view>

namespace bie::text::chat {

/// What stands between the quotes with its escapes read as Python's "unicode-escape" reads them.
std::string unescaped(std::string_view literal, int line);

}  // namespace bie::text::chat
