#include "formats/table_header.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "bie/formats/error.h"
#include "formats/lower.h"
#include "formats/table_place.h"

namespace bie::formats {
namespace {

constexpr const char* kind = table_kind;

bool names_labels(std::string_view text) { return label_rank(text) < std::size(label_names); }

enum class FirstLine { row, header, either };

/// Numbers as the names of columns: 0, 1, 2 or 2019, 2020.
bool count_up(const std::vector<double>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != std::floor(numbers[i]) || (i > 0 && numbers[i] != numbers[i - 1] + 1)) return false;
  return true;
}

/// Whether all rows but the first have a number there, or nothing.
bool numbers_below(const CsvText& csv, std::int64_t column) {
  bool any = false;
  for (std::int64_t row = 1; row < csv.rows(); ++row) {
    const std::string_view field = csv.at(row, column);
    if (csv_is_number(field))
      any = true;
    else if (!csv_is_missing(field))
      return false;
  }
  return any;
}

/// Whether the first row's text stands again in a later one.
bool stands_below(const CsvText& csv, std::int64_t column) {
  for (std::int64_t row = 1; row < csv.rows(); ++row)
    if (csv.at(row, column) == csv.at(0, column)) return true;
  return false;
}

FirstLine first_line(const CsvText& csv) {
  const std::int64_t columns = csv.columns();
  std::vector<double> numbers;
  bool label_name = false, name = false, repeated = false, word = false;
  for (std::int64_t i = 0; i < columns; ++i) {
    const std::string_view field = csv.at(0, i);
    label_name |= names_labels(field);
    double value = 0;
    if (csv_number(field, &value)) {
      numbers.push_back(value);
    } else if (!csv_is_missing(field)) {
      word = true;
      name |= numbers_below(csv, i);
      repeated |= stands_below(csv, i);
    }
  }
  if (numbers.empty()) return label_name || name || (word && !repeated) ? FirstLine::header : FirstLine::row;
  if (!label_name) return FirstLine::row;
  // Names like 2019 and 2020, or numbers and a label named y.
  if (!count_up(numbers)) return FirstLine::either;
  return FirstLine::header;
}

}  // namespace

std::size_t label_rank(std::string_view text) {
  const std::string word = lower(std::string(text));
  return static_cast<std::size_t>(std::find(std::begin(label_names), std::end(label_names), word) -
                                  std::begin(label_names));
}

bool has_header(const CsvText& csv) {
  const FirstLine first = first_line(csv);
  bool repeated = false;  // a label that later rows have too is no name
  if (first == FirstLine::header)
    for (std::int64_t i = 0; i < csv.columns(); ++i) repeated |= names_labels(csv.at(0, i)) && stands_below(csv, i);
  if (first == FirstLine::either || repeated)
    fail_file(kind, csv.path(),
              "line 1 may be names or a row of numbers and its label: a line of names above it settles that");
  return first == FirstLine::header;
}

std::vector<std::string> names_of(const CsvText& csv) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (std::int64_t i = 0; i < csv.columns(); ++i) {
    names.emplace_back(csv.at(0, i));
    if (names.back().empty()) names.back() = "column " + std::to_string(i + 1);
    if (!seen.insert(names.back()).second)
      fail_file(kind, csv.path(), "line 1 names two columns ", in_quotes(names.back()));
  }
  return names;
}

std::int64_t place_of(const CsvText& csv, const std::vector<std::string>& names, const std::string& wanted) {
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found != names.end()) return found - names.begin();
  std::int64_t place = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), place);
  if (error == std::errc() && end == wanted.data() + wanted.size() && place >= 1 && place <= csv.columns())
    return place - 1;
  fail_file(kind, csv.path(), "has no column ", in_quotes(wanted), "; it has ",
            names.empty() ? std::to_string(csv.columns()) + " without names" : listed(names));
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), shown); ++i) text += (i == 0 ? "" : ", ") + in_quotes(names[i]);
  return names.size() > shown ? text + " and " + std::to_string(names.size() - shown) + " more" : text;
}

}  // namespace bie::formats
