// Numbers as people read them, the same in every locale.
#pragma once

#include <cstdint>
#include <string>

namespace bie::report {

inline constexpr char no_value[] = "\u2013";

enum class Unit { number, percent, bytes, seconds };

/// Whether a number can be drawn: neither NaN nor so large that sums of it are not finite.
bool drawable(double value);

std::string fixed(double value, int decimals);
/// At most `digits` significant digits, no zeros at the end.
std::string significant(double value, int digits);
/// "1,437".
std::string grouped(std::uint64_t count);
/// A length in a drawing, in tenths.
std::string coordinate(double value);

/// "0.0312", "98.33 %", "778 kB", "54.0 \u00b5s", held together by a space that does not break; a dash for what is not
/// drawable.
std::string with_unit(double value, Unit unit);
/// with_unit of a round value, without trailing zeros: "50 %", "5 MB".
std::string round_with_unit(double value, Unit unit);

}  // namespace bie::report
