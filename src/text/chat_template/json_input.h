// JSON texts as values of a template.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

/// @param what        what sentences call the text.
/// @param is_messages  whether roles that APIs define count as the template's: templates build names of tokens of them.
Value from_json(Runtime& runtime, const std::string& text, std::string_view what, bool is_messages = false);

}  // namespace bie::text::chat
