// A column of a table's inputs, as its values are found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/formats/table.h"

namespace bie::formats {

/// A column of inputs. `first` is the first row behind the header.
/// @param kept  the user wants it among the inputs: texts that look like names of rows are taken then
/// @throws Error, one sentence naming the file, the line and the column
TableColumn learn_column(const CsvText& csv, std::int64_t column, std::int64_t first, const TableOptions& options,
                         const std::string& name, bool kept, std::vector<std::string>* notes);

/// Why a column names rows, and so is no input: a sentence's end such as "counts the rows"; empty where it does not.
std::string id_reason(const CsvText& csv, std::int64_t column, std::int64_t first, const NumberForm& numbers,
                      const std::string& name);

}  // namespace bie::formats
