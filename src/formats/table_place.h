// Sentences about a place in a table.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "bie/formats/csv.h"
#include "bie/formats/error.h"

namespace bie::formats {

inline constexpr const char* table_kind = "CSV file";  ///< what sentences call it

struct Place {
  const CsvText& csv;
  std::int64_t row, column;
};
inline std::ostream& operator<<(std::ostream& out, const Place& p) {
  return out << "line " << p.csv.line(p.row) << ", column " << p.column + 1 << " is "
             << in_quotes(p.csv.at(p.row, p.column));
}

/// A sentence says what was expected in a place and what stands there.
inline std::string expected_at(const Place& p, const std::string& what) {
  return joined("line ", p.csv.line(p.row), ", column ", p.column + 1, ": expected ", what, ", got ",
                in_quotes(p.csv.at(p.row, p.column)));
}

inline bool csv_is_number(std::string_view text) {
  double ignored = 0;
  return csv_number(text, &ignored);
}

}  // namespace bie::formats
