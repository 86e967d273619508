// Zero points of GPTQ files as they are stored: codes of a few bits, one behind the other, in rows of 32-bit words.
#pragma once

#include <cstdint>
#include <string>

#include "bie/formats/array.h"

namespace bie::formats {

/// Zero points [groups, ceil(n * bits / 32)] whose codes are all `stored`.
Array equal_zeros(std::int64_t groups, std::int64_t n, int bits, int stored);

/// A configuration that says "sym" beside zeros that are all alike and not in the middle contradicts itself: one of the
/// two is wrong, and most often it is the version, which moves every zero by one.
/// @param qzeros            [groups, words] of n codes of `bits` a row.
/// @param is_first_version  the zero point is the stored number plus one.
/// @return                  "", or what is wrong with the tensor, behind its name in a sentence.
std::string wrong_symmetry(const Array& qzeros, std::int64_t n, int bits, bool is_first_version);

}  // namespace bie::formats
