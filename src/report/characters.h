// Text of unknown origin, character by character.
#pragma once

#include <cstddef>
#include <string_view>

namespace bie::report {

/// Bytes of the character at the front of `text`; 0 where no character that XML allows stands there.
/// Source: The Unicode Standard, table 3-7 (well-formed UTF-8); XML 1.0, production 2 (Char).
std::size_t character_bytes(std::string_view text);

}  // namespace bie::report
