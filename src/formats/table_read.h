// Where a form's columns stand in a file, and what its fields are to a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bie/formats/table.h"
#include "formats/table_place.h"

namespace bie::formats {

/// Columns of a file; -1 where it has none.
struct TablePlaces {
  std::vector<std::int64_t> columns;
  std::int64_t label = -1, id = -1, key = -1;
  std::int64_t first = 0;  ///< row behind the header
};
TablePlaces find_places(const CsvText& csv, const TableForm& form, Labels labels, const AskedTable& asked);

/// Texts of a column that the training rows lack.
struct Unseen {
  std::int64_t count = 0;
  std::string first;  ///< the sentence about the first place
};

/// Puts the features of a value behind the others.
/// @param unseen  counts a text that training lacked, by the column's place; where not given it is refused
/// @throws Error naming the place
void add_features(const Place& place, const TableForm& form, const TableColumn& column, std::vector<double>* values,
                  std::map<std::int64_t, Unseen>* unseen);

}  // namespace bie::formats
