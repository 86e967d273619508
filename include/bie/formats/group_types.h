// Types of codes of 1 to 8 bits in groups of any size, which folders hold and GGUF files do not.
// Source: docs/spec/files.md#groups.
#pragma once

#include <cstdint>
#include <string_view>

#include "bie/formats/gguf.h"

namespace bie::formats {

/// The zero that a group of such a type has beside its scale s, a 16-bit float.
enum class GroupZero : std::uint8_t {
  real,   ///< W = s * q - z, z a 16-bit float
  whole,  ///< W = s * (q - z), z from 1 to 2^bits, as GPTQ's files have it
};

inline constexpr std::int64_t group_step = 16;       ///< groups are multiples of it
inline constexpr std::int64_t group_head_bytes = 4;  ///< scale and zero of a block, two bytes each

/// The type "W3G64" of groups of 64 codes of 3 bits; "W3G64Z" has whole zeros. A block is a group: s, then z, then
/// the codes as CodedRows has them, whole bytes: a row's codes are those of its blocks, one behind the other.
/// @return null for another name, bits other than 1 to 6 and 8 (with whole zeros: 2, 3, 4 and 8), and groups other than
/// the multiples of group_step up to 1,024.
const GgufType* group_type(std::string_view name);

/// The same type with zeros of the other kind; null where it has none.
const GgufType* group_type_with(const GgufType& type, GroupZero zero);

/// Whether a type is one of these.
bool is_group_type(const GgufType& type);

/// The zeros of a type with groups.
GroupZero zero_of(const GgufType& type);

/// The stored whole zero of a block of a type that has such.
int whole_zero_at(const std::uint8_t* block);

}  // namespace bie::formats
