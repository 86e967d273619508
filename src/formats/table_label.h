// The label of a table: which column it is, and what its values are.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "bie/formats/table.h"

namespace bie::formats {

/// The column of the label where the user names none: label, class, target or y, else the last that is an input. What
/// was chosen goes into `notes`.
/// @param names     of the columns; none in a table without a header
/// @param left_out  columns that are not read
/// @param id        the column that names rows; -1: there is none
std::int64_t choose_label(const CsvText& csv, const std::vector<std::string>& names,
                          const std::set<std::int64_t>& left_out, std::int64_t id, std::vector<std::string>* notes);

/// The classes of a column of labels. `first` is the first row behind the header, here and below.
/// @throws Error, one sentence naming the file: also where the labels look like the numbers of a regression, or like
/// names of rows.
std::vector<std::string> learn_classes(const CsvText& csv, std::int64_t column, std::int64_t first,
                                       const TableOptions& options);

/// @throws Error where a label that is to be predicted is no number, or all are equal.
void check_target(const CsvText& csv, std::int64_t column, std::int64_t first, const TableOptions& options);

}  // namespace bie::formats
