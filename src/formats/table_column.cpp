#include "formats/table_column.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "bie/formats/error.h"
#include "formats/lower.h"
#include "formats/number_text.h"
#include "formats/table_place.h"

namespace bie::formats {
namespace {

constexpr const char* kind = table_kind;
constexpr std::size_t most_texts = 100;
constexpr std::int64_t least_ids = 30;  // rows: of fewer, different numbers are no sign of an id

/// Whether so many different values in so many rows tell each row apart, but for a few.
bool names_each(std::int64_t different, std::int64_t rows) { return rows >= least_ids && 100 * different >= 95 * rows; }

/// Whether the values count the rows: 0, 1, 2 or 1, 2, 3.
bool counts_rows(const CsvText& csv, std::int64_t column, std::int64_t first, const NumberForm& numbers) {
  double before = 0;
  for (std::int64_t row = first; row < csv.rows(); ++row) {
    double value = 0;
    if (!csv_number(csv.at(row, column), &value, numbers)) return false;
    if (row == first ? value != 0 && value != 1 : value != before + 1) return false;
    before = value;
  }
  return csv.rows() - first > 2;
}

bool names_rows(const std::string& name) {
  const std::string word = lower(name);
  return word == "id" || word == "index" || word == "rownames" || word == "unnamed: 0" || word.starts_with("column ");
}

/// How an option names the column: by its name, or by its number.
std::string option_word(const std::string& name, std::int64_t column) {
  return name.empty() ? std::to_string(column + 1) : name.find(' ') == std::string::npos ? name : in_quotes(name);
}

/// Contents of a column.
struct Found {
  std::int64_t numbers = 0, others = 0, blanks = 0, written = 0;
  double sum = 0;
  std::optional<std::int64_t> other, blank, number_text;   ///< the first row of each
  std::map<std::string, std::int64_t, std::less<>> texts;  ///< and how often each stands there
};

Found look_at(const CsvText& csv, std::int64_t column, std::int64_t first, const NumberForm& numbers) {
  Found found;
  for (std::int64_t row = first; row < csv.rows(); ++row) {
    const std::string_view field = csv.at(row, column);
    double value = 0;
    if (csv_number(field, &value, numbers)) {
      found.sum += value;
      ++found.numbers;
    } else if (csv_is_missing(field, numbers)) {
      if (++found.blanks == 1) found.blank = row;
      continue;
    } else {
      if (++found.others == 1) found.other = row;
      if (is_written_as_a_number(field) && ++found.written == 1) found.number_text = row;
    }
    if (const auto known = found.texts.find(field); known != found.texts.end())
      ++known->second;
    else
      found.texts.emplace(field, 1);
  }
  return found;
}

[[noreturn]] void fail_number(const CsvText& csv, std::int64_t column, const Found& found, const std::string& option) {
  if (!found.number_text)
    fail_file(kind, csv.path(), expected_at({csv, *found.other, column}, "a number"), "; --missing-words ",
              in_quotes(csv.at(*found.other, column)), " takes it for a missing value");
  const Place place{csv, *found.number_text, column};
  const bool comma = csv.at(place.row, column).find(',') != std::string_view::npos;
  fail_file(kind, csv.path(), place, ": numbers have a decimal point, and no commas, blanks or signs such as %; ",
            comma ? "--decimal , or --thousands , says what a comma is, " : "", "--drop ", option,
            " leaves the column out");
}

/// The most frequent texts, sorted, and whether there are others.
void take_texts(const Found& found, const std::string& name, std::int64_t column, TableColumn* to,
                std::vector<std::string>* notes) {
  std::vector<std::pair<std::string, std::int64_t>> texts(found.texts.begin(), found.texts.end());
  if (texts.size() > most_texts) {
    std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::int64_t rest = 0;
    for (std::size_t i = most_texts; i < texts.size(); ++i) rest += texts[i].second;
    notes->push_back(joined(name.empty() ? joined("column ", column + 1) : in_quotes(name), " has ", texts.size(),
                            " different texts: the ", most_texts, " most frequent ones have an input each, the ", rest,
                            " rows with others share one"));
    texts.resize(most_texts);
    to->others = true;
  }
  for (auto& [text, count] : texts) to->values.push_back(std::move(text));
  std::sort(to->values.begin(), to->values.end());
}

}  // namespace

TableColumn learn_column(const CsvText& csv, std::int64_t column, std::int64_t first, const TableOptions& options,
                         const std::string& name, bool kept, std::vector<std::string>* notes) {
  const Found found = look_at(csv, column, first, options.numbers);
  const std::string option = option_word(name, column);
  if (found.numbers + found.others == 0)
    fail_file(kind, csv.path(), "column ", column + 1, " has no value; --drop ", option, " leaves it out");
  if (found.blank && options.missing == Missing::refuse)
    fail_file(kind, csv.path(), expected_at({csv, *found.blank, column}, "a value"),
              "; --missing mean puts another in its place, --missing drop leaves the row out");
  TableColumn learnt{.name = name};
  learnt.marked = found.blanks > 0 && options.missing == Missing::mean;
  if (2 * (found.numbers + found.written) >= found.numbers + found.others) {
    if (found.others > 0) fail_number(csv, column, found, option);
    learnt.mean = found.sum / static_cast<double>(found.numbers);
    return learnt;
  }
  const auto different = static_cast<std::int64_t>(found.texts.size()), rows = found.numbers + found.others;
  if (!kept && names_each(different, rows))
    fail_file(kind, csv.path(), Place{csv, *found.other, column}, ", and the column has ", different,
              " different texts in ", rows, " rows: they name rows, and are no kinds; --drop ", option,
              " leaves it out, --id ", name.empty() ? "COLUMN" : option, " keeps it beside the answers, --keep ",
              option, " takes it all the same");
  take_texts(found, name, column, &learnt, notes);
  return learnt;
}

std::string id_reason(const CsvText& csv, std::int64_t column, std::int64_t first, const NumberForm& numbers,
                      const std::string& name) {
  if (names_rows(name) && counts_rows(csv, column, first, numbers)) return "counts the rows";
  std::vector<double> values;
  for (std::int64_t row = first; row < csv.rows(); ++row) {
    const std::string_view field = csv.at(row, column);
    double value = 0;
    if (csv_is_missing(field, numbers)) continue;
    const bool measured = field.find_first_of("eE") != field.npos;  // every number beyond 2^53 is whole
    if (measured || !csv_number(field, &value, numbers) || value != std::floor(value)) return "";
    values.push_back(value);
  }
  const auto rows = static_cast<std::int64_t>(values.size());
  std::sort(values.begin(), values.end());
  const std::int64_t different = std::unique(values.begin(), values.end()) - values.begin();
  return names_each(different, rows) ? joined("has ", different, " different whole numbers in ", rows, " rows") : "";
}

}  // namespace bie::formats
