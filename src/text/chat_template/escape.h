// HTML's escapes, as markupsafe writes them.
#pragma once

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

MarkedText html_escaped(Runtime& runtime, const MarkedText& text);

}  // namespace bie::text::chat
