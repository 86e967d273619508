// Texts that people read as numbers.
#pragma once

#include <string_view>

namespace bie::formats {

/// Whether people would read a text as a number that csv_number does not: "0,5", "1,200", "12 %", "$3".
bool is_written_as_a_number(std::string_view text);

}  // namespace bie::formats
