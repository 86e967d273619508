// Data of the reports: named values, weights counted in bins, small pictures.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace bie::report {

/// A number nobody measured: a curve has a gap there, a table a dash.
inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// A line of a list, in the words and units it is shown in. Any text: it is escaped.
struct Fact {
  std::string name, value;
};

/// Counts in equally wide bins from `low` to `high`. Integer codes have a bin each, its middle the code: 4-bit ones are
/// 16 bins from -8.5 to 7.5.
struct Histogram {
  double low = 0, high = 0;
  std::vector<std::uint64_t> counts;  ///< empty: not known
};

/// Eight bits per channel, row-major, channels together.
struct Picture {
  int width = 0, height = 0;
  int channels = 1;  ///< 1 grey, 3 red, green and blue
  std::vector<std::uint8_t> pixels;
};

}  // namespace bie::report
