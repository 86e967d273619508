// The blocks of GGUF's types.
#pragma once

#include <cstdint>

#include "bie/formats/gguf.h"

namespace bie::formats {

inline constexpr std::int64_t most_block_weights = 256;

/// Reads one block: its codes, and for each group a scale and, where the type's zero is 0, an offset z.
using OpenBlock = void (*)(const std::uint8_t* block, std::uint8_t* codes, float* scales, float* zeros);

/// Null of types without codes.
OpenBlock open_block(const GgufType& type);

/// The type of a file's number, null for none. Number 42 gives Q2_0 in blocks of 64.
const GgufType* gguf_type_of_id(std::uint32_t id);

}  // namespace bie::formats
