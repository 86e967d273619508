// The types that floats are rounded to, by the names that people write: "q4_0", "w3g64".
#pragma once

#include <string>
#include <string_view>

#include "bie/formats/gguf.h"

namespace bie::formats {

/// The type of a name in small letters, groups ("w3g64") included; null for another.
const GgufType* written_type(std::string_view name);

/// "f32, f16, ..., q1_0 and wBgG"
std::string written_type_names();

/// The name in small letters.
std::string name_of_type(const GgufType& type);

/// The smallest type that is no worse and may divide a row that this one does not: another type, smaller groups, or
/// f16.
const GgufType& fitting_type(const GgufType& type, std::int64_t columns);

}  // namespace bie::formats
