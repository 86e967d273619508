// The functions that every template may call.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

/// range, dict, namespace, cycler, joiner, raise_exception and, where there is a time, strftime_now.
std::vector<std::pair<std::string, Value>> functions(Runtime& runtime);

}  // namespace bie::text::chat
