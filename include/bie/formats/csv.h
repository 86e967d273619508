// Tables of numbers as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bie::formats {

struct CsvTable {
  std::int64_t columns = 0;         ///< of numbers: the label's is not among them
  std::vector<float> numbers;       ///< [rows, columns]
  std::vector<std::string> labels;  ///< one a row; none where there is no column of labels
};

enum class CsvLabels {
  wanted,    ///< a column of the header named label, class, target or y, else the last one
  leftover,  ///< the same column, but only where the table has one more than `columns` says
};

/// Fields are separated by commas, semicolons or tabs, whichever comes first in the file; a first line of names
/// is a header, one where a number is missing is a row. Fields may stand in double quotes, without a separator inside.
/// @param columns  how many columns of numbers are wanted; 0: any.
/// @throws Error, one sentence naming the file, the line and the column.
CsvTable load_csv(const std::string& path, CsvLabels labels, std::int64_t columns = 0);

}  // namespace bie::formats
