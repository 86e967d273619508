#include "formats/table_label.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>

#include "bie/formats/error.h"
#include "formats/table_header.h"
#include "formats/table_place.h"

namespace bie::formats {
namespace {

constexpr const char* kind = table_kind;
constexpr std::int64_t most_classes = 10000;

}  // namespace

std::int64_t choose_label(const CsvText& csv, const std::vector<std::string>& names,
                          const std::set<std::int64_t>& left_out, std::int64_t id, std::vector<std::string>* notes) {
  const std::int64_t all = csv.columns();
  const auto name_at = [&](std::int64_t i) { return in_quotes(names[static_cast<std::size_t>(i)]); };
  std::int64_t label = all - 1;
  while (label > 0 && (left_out.count(label) > 0 || label == id)) --label;
  if (names.empty()) {
    notes->push_back(joined("the label is column ", label + 1, "; --label N takes another"));
    return label;
  }
  std::size_t rank = std::size(label_names);
  for (std::int64_t i = 0; i < all; ++i) {
    const std::size_t own = label_rank(csv.at(0, i));
    if (own == std::size(label_names) || left_out.count(i) > 0) continue;
    if (own >= rank) continue;
    label = i;
    rank = own;
  }
  const bool last = rank == std::size(label_names) && label == all - 1;
  notes->push_back(
      joined("the label is the column ", name_at(label), last ? ", the last" : "", "; --label NAME takes another"));
  return label;
}

std::vector<std::string> learn_classes(const CsvText& csv, std::int64_t column, std::int64_t first,
                                       const TableOptions& options) {
  std::map<double, std::string> numbers;
  std::set<std::string> texts;
  std::int64_t count = 0;
  bool fractions = false;
  for (std::int64_t row = first; row < csv.rows(); ++row) {
    const std::string_view field = csv.at(row, column);
    if (csv_is_missing_label(field, options.numbers)) {
      if (options.missing == Missing::drop) continue;
      fail_file(kind, csv.path(), expected_at({csv, row, column}, "a label"), "; --missing drop leaves the row out");
    }
    ++count;
    double value = 0;
    if (csv_number(field, &value, options.numbers)) {
      numbers.emplace(value, field);
      fractions |= value != std::floor(value);
    }
    texts.emplace(field);
  }
  const bool all_numbers = std::all_of(texts.begin(), texts.end(), [&](auto& text) {
    double ignored = 0;
    return csv_number(text, &ignored, options.numbers);
  });
  const auto different = static_cast<std::int64_t>(all_numbers ? numbers.size() : texts.size());
  const std::string name = in_quotes(first == 0 ? std::to_string(column + 1) : std::string(csv.at(0, column)));
  if (different == 1) fail_file(kind, csv.path(), "expected two labels at least, got one, ", in_quotes(*texts.begin()));
  if (different > 20 && (5 * different > count || (all_numbers && fractions)))
    fail_file(kind, csv.path(), "column ", name, " has ", different, " different labels in ", count, " rows: ",
              all_numbers ? "if it is a number to be predicted, add --task regression; "
                          : "texts that name rows are no classes; ",
              "if another column is the label, --label NAME");
  if (different > most_classes)
    fail_file(kind, csv.path(), "expected at most ", most_classes, " different labels, got ", different);
  std::vector<std::string> classes;
  if (all_numbers)
    for (const auto& [value, text] : numbers) classes.push_back(text);
  else
    classes.assign(texts.begin(), texts.end());
  return classes;
}

void check_target(const CsvText& csv, std::int64_t column, std::int64_t first, const TableOptions& options) {
  std::optional<double> any;
  bool differ = false;
  for (std::int64_t row = first; row < csv.rows(); ++row) {
    const std::string_view field = csv.at(row, column);
    double value = 0;
    if (csv_number(field, &value, options.numbers)) {
      differ |= any && *any != value;
      any = value;
    } else if (!csv_is_missing(field, options.numbers) || options.missing != Missing::drop) {
      fail_file(kind, csv.path(), expected_at({csv, row, column}, "the number to be predicted, of at most 3.4e38"));
    }
  }
  if (!differ) fail_file(kind, csv.path(), "all labels are equal, there is nothing to predict");
}

}  // namespace bie::formats
