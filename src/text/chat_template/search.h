// Searches whose time is bounded whatever the texts are.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/chat_template/runtime.h"

namespace bie::text::chat {

/// Where `wanted` begins first from there on, in time of the order of both texts; npos where it does not.
std::size_t find_first(std::string_view text, std::string_view wanted, std::size_t from = 0);
/// Where `wanted` begins last.
std::size_t find_last(Runtime& runtime, std::string_view text, std::string_view wanted);

}  // namespace bie::text::chat
