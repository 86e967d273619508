// The characters that stand for bytes in vocabularies of byte-level BPE.
#pragma once

#include <string>
#include <string_view>

namespace bie::text {

/// Printable Latin characters stand for themselves, the others of U+0100 on for what is left, in the order of bytes.
/// Source: GPT-2, bytes_to_unicode.
std::string characters_of_bytes(std::string_view bytes);
/// The reverse; false where a character stands for no byte.
bool bytes_of_characters(std::string_view characters, std::string* bytes);

}  // namespace bie::text
