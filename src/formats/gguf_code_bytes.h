// The codes of a block in its bytes, for the types that are written. Its scales are elsewhere in it and stay.
// Source: ggml-common.h; docs/spec/files.md#gguf.
#pragma once

#include <cstdint>
#include <string_view>

namespace bie::formats {

/// Puts the codes of a block in place of those that it has.
using PutCodes = void (*)(const std::uint8_t* codes, std::uint8_t* block);

/// Null for a type that is not written.
PutCodes code_bytes_of(std::string_view type);

}  // namespace bie::formats
