// The blocks of types with groups of codes, one block a group.
#pragma once

#include <cstdint>
#include <string>

#include "bie/formats/gguf.h"

namespace bie::formats {

inline constexpr std::int64_t most_group = 1024;

/// As gguf_row does.
void open_groups(const GgufType& type, const std::uint8_t* blocks, std::int64_t columns, std::uint8_t* codes,
                 float* scales, float* zeros);

/// As gguf_put_codes does.
void put_group_codes(const GgufType& type, const std::uint8_t* codes, std::uint8_t* block);

/// Rounds the numbers of a group to a block, which is zeros.
/// @param weights  of squared errors, above 0; null: the scale goes from the least number to the largest.
/// @throws Error beginning with `what`: a scale or zero beyond 16-bit floats.
void round_group(const std::string& what, const GgufType& type, const float* x, const float* weights,
                 std::uint8_t* block);

}  // namespace bie::formats
