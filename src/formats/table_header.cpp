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

/// Contents of a column below the first line.
struct Below {
  std::int64_t numbers = 0, others = 0;
  bool fractions = false, repeats = false;  ///< repeats: the first line's text stands again
  double least = 0, most = 0;
};

Below below(const CsvText& csv, std::int64_t column, const NumberForm& form) {
  Below found;
  for (std::int64_t row = 1; row < csv.rows(); ++row) {
    const std::string_view field = csv.at(row, column);
    found.repeats |= field == csv.at(0, column);
    double value = 0;
    if (csv_number(field, &value, form)) {
      found.least = found.numbers == 0 ? value : std::min(found.least, value);
      found.most = found.numbers == 0 ? value : std::max(found.most, value);
      found.fractions |= field.find_first_not_of("+-0123456789") != std::string_view::npos;
      ++found.numbers;
    } else if (!csv_is_missing(field, form)) {
      ++found.others;
    }
  }
  return found;
}

/// A first line of numbers alone.
FirstLine numbers_alone(const std::vector<double>& numbers, const std::vector<Below>& columns) {
  constexpr std::int64_t least_rows = 10;  // fewer rows do not say how far values lie from each other
  std::size_t repeated = 0, far = 0;
  bool other_kind = false;  // whole numbers stand in no row of the column
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Below& c = columns[i];
    const double range = c.most - c.least;
    repeated += c.repeats;
    other_kind |= !c.repeats && (c.fractions || (c.others > 0 && c.numbers == 0));
    far += c.numbers == 0 ? !c.repeats && c.others > 0
                          : c.numbers >= least_rows && (numbers[i] < c.least - range || numbers[i] > c.most + range);
  }
  if (columns.size() > 1 && count_up(numbers) && 2 * repeated <= columns.size()) {
    if (other_kind) return FirstLine::header;
    if (repeated == 0 && (numbers.front() == 0 || columns.size() > 2)) return FirstLine::either;
  }
  return far == columns.size() ? FirstLine::either : FirstLine::row;
}

FirstLine first_line(const CsvText& csv, const NumberForm& form) {
  const std::int64_t columns = csv.columns();
  std::vector<double> numbers;
  std::vector<Below> belows;
  bool label_name = false, name = false, repeated = false, word = false;
  for (std::int64_t i = 0; i < columns; ++i) {
    const std::string_view field = csv.at(0, i);
    label_name |= names_labels(field);
    const Below found = below(csv, i, form);
    double value = 0;
    if (csv_number(field, &value, form)) {
      numbers.push_back(value);
      belows.push_back(found);
    } else if (!csv_is_missing(field, form)) {
      word = true;
      name |= found.numbers > 0 && found.others == 0;
      repeated |= found.repeats;
    }
  }
  if (numbers.empty()) return label_name || name || (word && !repeated) ? FirstLine::header : FirstLine::row;
  if (static_cast<std::int64_t>(numbers.size()) == columns) return numbers_alone(numbers, belows);
  if (!label_name) return FirstLine::row;
  // Names like 2019 and 2020, or numbers and a label named y.
  if (!count_up(numbers)) return FirstLine::either;
  return FirstLine::header;
}

/// Whether the first row's text stands again in a later one.
bool stands_below(const CsvText& csv, std::int64_t column) {
  for (std::int64_t row = 1; row < csv.rows(); ++row)
    if (csv.at(row, column) == csv.at(0, column)) return true;
  return false;
}

}  // namespace

std::size_t label_rank(std::string_view text) {
  const std::string word = lower(std::string(text));
  return static_cast<std::size_t>(std::find(std::begin(label_names), std::end(label_names), word) -
                                  std::begin(label_names));
}

bool has_header_of_words(const CsvText& csv, std::optional<bool> said, const NumberForm& numbers) {
  if (said) return *said;
  bool is_row_of_numbers = true;
  double ignored = 0;
  for (std::int64_t i = 0; i < csv.columns(); ++i)
    is_row_of_numbers = is_row_of_numbers && csv_number(csv.at(0, i), &ignored, numbers);
  return !is_row_of_numbers && has_header(csv, said, numbers, nullptr);
}

bool has_header(const CsvText& csv, std::optional<bool> said, const NumberForm& numbers,
                std::vector<std::string>* notes) {
  if (said) return *said;
  const FirstLine first = first_line(csv, numbers);
  bool repeated = false;  // a label that later rows have too is no name
  if (first == FirstLine::header)
    for (std::int64_t i = 0; i < csv.columns(); ++i) repeated |= names_labels(csv.at(0, i)) && stands_below(csv, i);
  if (first == FirstLine::either || repeated)
    fail_file(kind, csv.path(),
              "line 1 may be names or a row of numbers and its label: --header yes or --header no settles that");
  double ignored = 0;
  if (first == FirstLine::header && notes != nullptr && csv_number(csv.at(0, 0), &ignored, numbers))
    notes->push_back(joined("line 1 (", in_quotes(csv.at(0, 0)), ", ", in_quotes(csv.at(0, 1)),
                            csv.columns() > 2 ? ", ..." : "", ") is taken for names; --header no takes it for a row"));
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
