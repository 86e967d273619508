// The first line of a table: names of columns, or a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bie/formats/csv.h"

namespace bie::formats {

/// Names that the column of labels has, the surest first.
inline constexpr std::string_view label_names[] = {"label", "class", "target", "y"};

/// Where a name stands among those of labels; their number where it is none.
std::size_t label_rank(std::string_view text);

/// A header has names where rows have numbers, or only texts that no row has; a row with a missing number is a row.
/// Numbers that count up, as pandas writes them, are names where rows have other values.
/// @param said   what the user says, which settles it
/// @param notes  gets a sentence where numbers are taken for names; may be null
/// @throws Error, here and below, one sentence naming the file: where the first line may be either.
bool has_header(const CsvText& csv, std::optional<bool> said, const NumberForm& numbers,
                std::vector<std::string>* notes);

/// Header detection for a table that is given to a model without column names: there, a line of numbers alone is a row.
bool has_header_of_words(const CsvText& csv, std::optional<bool> said, const NumberForm& numbers);

/// The names of a header; of empty ones their places.
std::vector<std::string> names_of(const CsvText& csv);

/// The column that a user names: by its name, else by its place from 1 on.
std::int64_t place_of(const CsvText& csv, const std::vector<std::string>& names, const std::string& wanted);

/// "a", "b" and 3 more.
std::string listed(const std::vector<std::string>& names);

}  // namespace bie::formats
