// Python's two ways to format.
#pragma once

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

/// `format % values`: a tuple, a dict for %(name)s, or one value.
Value percent_formatted(Runtime& runtime, const Value& format, const Value& values);
/// str.format.
MarkedText brace_formatted(Runtime& runtime, const MarkedText& format, const Arguments& arguments);

}  // namespace bie::text::chat
