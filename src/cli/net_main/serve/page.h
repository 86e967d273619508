// The chat page of bie serve.
#pragma once

#include <string_view>

namespace bie::cli {

/// The text of page.html.
std::string_view chat_page();

}  // namespace bie::cli
