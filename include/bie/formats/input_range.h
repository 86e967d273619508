// The values that a model takes, and so what becomes of those of a file.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

namespace bie::formats {

/// Bytes are those of pictures, IDX and NPY files.
enum class InputRange {
  unit,     ///< 0 to 1: bytes are divided by 255, other numbers have to lie there
  bytes,    ///< 0 to 255: bytes stay as they are, other numbers have to lie there
  any,      ///< unknown: bytes are divided by 255, other numbers stay as they are
  numbers,  ///< the numbers of a table: all stay as they are
};

/// The words of net files and options.
inline constexpr std::pair<InputRange, const char*> input_ranges[] = {{InputRange::unit, "unit"},
                                                                      {InputRange::bytes, "bytes"},
                                                                      {InputRange::any, "any"},
                                                                      {InputRange::numbers, "numbers"}};

inline const char* name(InputRange range) {
  return std::find_if(std::begin(input_ranges), std::end(input_ranges),
                      [range](const auto& known) { return known.first == range; })
      ->second;
}

inline std::optional<InputRange> input_range_of(const std::string& name) {
  for (const auto& [range, known] : input_ranges)
    if (name == known) return range;
  return {};
}

}  // namespace bie::formats
