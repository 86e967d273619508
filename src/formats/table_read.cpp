#include "formats/table_read.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "bie/formats/error.h"
#include "formats/table_header.h"

namespace bie::formats {
namespace {

constexpr const char* kind = table_kind;

/// The header of a file for a model whose columns have names.
TablePlaces find_named(const CsvText& csv, const TableForm& form, Labels labels, const std::vector<std::string>& drop) {
  std::vector<std::string> fields;
  for (std::int64_t i = 0; i < csv.columns(); ++i) fields.emplace_back(csv.at(0, i));
  std::set<std::string> wanted, present(fields.begin(), fields.end());
  for (const TableColumn& column : form.columns) wanted.insert(column.name);
  std::vector<std::string> none, all;
  const std::vector<std::string> names = [&] {
    for (const TableColumn& column : form.columns) all.push_back(column.name);
    for (const std::string& field : fields)
      if (wanted.count(field) > 0) return names_of(csv);
    fail_file(kind, csv.path(), "line 1 names none of the model's columns; they are ", listed(all));
  }();
  const auto find = [&](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? std::int64_t{-1} : found - names.begin();
  };
  TablePlaces places;
  places.first = 1;
  for (const TableColumn& column : form.columns) {
    places.columns.push_back(find(column.name));
    if (places.columns.back() < 0) none.push_back(column.name);
  }
  if (!none.empty()) fail_file(kind, csv.path(), "has no column ", listed(none), ", which the model was trained with");
  places.label = find(form.label);
  if (places.label < 0 && labels == Labels::wanted)
    fail_file(kind, csv.path(), "has no column ", in_quotes(form.label), ", the label");
  if (!form.id.empty()) places.id = find(form.id);
  if (!form.split.column.empty()) places.key = find(form.split.column);
  std::set<std::int64_t> dropped;
  for (const std::string& name : drop)  // one of several files may have it
    if (const std::int64_t place = find(name); place >= 0) dropped.insert(place);
  for (std::int64_t i = 0; i < csv.columns(); ++i) {
    const std::string& name = names[static_cast<std::size_t>(i)];
    const bool known = wanted.count(name) > 0 || i == places.label || i == places.id || dropped.count(i) > 0 ||
                       std::find(form.left_out.begin(), form.left_out.end(), name) != form.left_out.end();
    if (!known)
      fail_file(kind, csv.path(), "has a column ", in_quotes(name),
                ", which the model was trained without; --drop leaves it out");
  }
  return places;
}

TablePlaces find_by_place(const CsvText& csv, const TableForm& form, Labels labels, std::optional<bool> header) {
  const std::int64_t all = csv.columns(), inputs = static_cast<std::int64_t>(form.columns.size());
  const std::int64_t whole = form.places.empty() ? inputs + 1 : form.width;
  if (all != whole && (all != whole - 1 || labels == Labels::wanted))
    fail_file(kind, csv.path(), "expected ", whole - 1, " columns",
              labels == Labels::wanted ? " and a label" : ", or one more with labels", ", got ", all);
  TablePlaces places;
  places.first = has_header_of_words(csv, header, form.numbers) ? 1 : 0;
  if (all == whole) {
    places.label = form.label_place >= 0 ? form.label_place : all - 1;
    if (form.label_place < 0 && places.first == 1)
      for (std::int64_t i = all; i-- > 0;)
        if (label_rank(csv.at(0, i)) < std::size(label_names)) places.label = i;
  }
  for (const std::int64_t place : form.places)
    places.columns.push_back(place - (places.label < 0 && place > form.label_place ? 1 : 0));
  for (std::int64_t i = 0; i < all && form.places.empty(); ++i)
    if (i != places.label) places.columns.push_back(i);
  return places;
}

/// The number of a field, or what stands in the place of a missing one.
double number_of(const Place& place, const TableForm& form, const TableColumn& column, bool missing) {
  double value = column.mean;
  if (!missing && !csv_number(place.csv.at(place.row, place.column), &value, form.numbers))
    fail_file(kind, place.csv.path(), expected_at(place, "a number"));
  return column.curve ? column.curve->of(value) : value;
}

}  // namespace

NumberForm AskedTable::over(NumberForm numbers) const {
  numbers.decimal = decimal.value_or(numbers.decimal);
  numbers.thousands = thousands.value_or(numbers.thousands);
  if (missing) numbers.missing = missing;
  if (numbers.decimal == numbers.thousands)
    throw Error(joined("--decimal and --thousands are both ", in_quotes(std::string(1, numbers.decimal)),
                       ", which means one of them"));
  return numbers;
}

TablePlaces find_places(const CsvText& csv, const TableForm& form, Labels labels, const AskedTable& asked) {
  return form.named ? find_named(csv, form, labels, asked.drop) : find_by_place(csv, form, labels, asked.header);
}

void add_features(const Place& place, const TableForm& form, const TableColumn& column, std::vector<double>* values,
                  std::map<std::int64_t, Unseen>* unseen) {
  const std::string_view field = place.csv.at(place.row, place.column);
  const auto found = std::lower_bound(column.values.begin(), column.values.end(), field);
  const bool known = found != column.values.end() && *found == field;
  const bool missing = !known && csv_is_missing(field, form.numbers);
  if (missing && form.missing != Missing::mean)
    fail_file(kind, place.csv.path(), expected_at(place, "a value"),
              "; the model was trained without missing values (bie train --missing mean takes them)");
  const std::size_t begin = values->size();
  if (column.values.empty()) {
    values->push_back(number_of(place, form, column, missing));
  } else {
    const bool strange = !known && !missing && !column.others;
    if (strange && unseen == nullptr)
      fail_file(kind, place.csv.path(), place, ", the model was trained with ", listed(column.values));
    if (strange && ++(*unseen)[place.column].count == 1)
      (*unseen)[place.column].first = joined("line ", place.csv.line(place.row), " has ", in_quotes(field));
    for (auto at = column.values.begin(); at != column.values.end(); ++at)
      values->push_back(known && at == found ? 1 : 0);
    if (column.others) values->push_back(known || missing ? 0 : 1);
  }
  if (column.marked) values->push_back(missing ? 1 : 0);
  for (std::size_t i = 0; i < column.centers.size(); ++i) {
    double& value = (*values)[begin + i];
    value = column.scales[i] == 0 ? 0 : (value - column.centers[i]) / column.scales[i];
    if (!std::isfinite(static_cast<float>(value)))
      fail_file(kind, place.csv.path(), place, ", too far from the values that the model was trained with");
  }
}

TableRows read_table(const CsvText& csv, const TableForm& model_form, Labels labels, const AskedTable& asked) {
  TableForm form = model_form;
  form.numbers = asked.over(form.numbers);
  const TablePlaces places = find_places(csv, form, labels, asked);
  TableRows rows;
  std::map<std::int64_t, Unseen> unseen;
  std::vector<double> features;
  for (std::int64_t row = places.first; row < csv.rows(); ++row) {
    const auto is_missing = [&](std::int64_t column) { return csv_is_missing(csv.at(row, column), form.numbers); };
    const bool no_label =
        labels == Labels::wanted &&
        (form.regression ? is_missing(places.label) : csv_is_missing_label(csv.at(row, places.label), form.numbers));
    if (form.missing == Missing::drop && labels == Labels::wanted &&
        (no_label || std::any_of(places.columns.begin(), places.columns.end(), is_missing))) {
      ++rows.dropped;
      continue;
    }
    if (no_label)
      fail_file(kind, csv.path(), expected_at({csv, row, places.label}, "a label"),
                "; --missing drop leaves the row out");
    features.clear();
    for (std::size_t i = 0; i < form.columns.size(); ++i)
      add_features({csv, row, places.columns[i]}, form, form.columns[i], &features,
                   asked.refuse_unseen ? nullptr : &unseen);
    for (const double value : features) rows.values.push_back(static_cast<float>(value));
    if (places.label >= 0) rows.labels.emplace_back(csv.at(row, places.label));
    if (places.id >= 0) rows.ids.emplace_back(csv.at(row, places.id));
    if (places.key >= 0) rows.keys.emplace_back(csv.at(row, places.key));
    rows.places.push_back(row - places.first);
    ++rows.count;
  }
  if (rows.count == 0)
    fail_file(kind, csv.path(), rows.dropped > 0 ? "has a missing value in each row" : "has a header and no rows");
  for (const auto& [column, found] : unseen)
    rows.notes.push_back(joined(csv.path(), ": column ",
                                form.named ? in_quotes(csv.at(0, column)) : std::to_string(column + 1), " has ",
                                found.count, found.count == 1 ? " value" : " values",
                                " that the training rows lack, taken for none of theirs: ", found.first,
                                "; --unseen refuse refuses such a file"));
  return rows;
}

std::vector<double> label_numbers(const CsvText& csv, const TableForm& form, const TableRows& rows) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < rows.labels.size(); ++i) {
    double value = 0;
    if (!csv_number(rows.labels[i], &value, form.numbers))
      fail_file(kind, csv.path(), "row ", rows.places[i] + 1, ": the label: expected a number, got ",
                in_quotes(rows.labels[i]));
    numbers.push_back(value);
  }
  return numbers;
}

std::vector<std::int64_t> label_classes(const CsvText& csv, const TableForm& form, const TableRows& rows,
                                        const std::vector<std::string>& classes) {
  std::map<std::string, std::int64_t> by_text;
  std::map<double, std::int64_t> by_number;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    by_text.emplace(classes[i], static_cast<std::int64_t>(i));
    double number = 0;
    if (csv_number(classes[i], &number, form.numbers)) by_number.emplace(number, static_cast<std::int64_t>(i));
  }
  std::vector<std::int64_t> indices;
  for (std::size_t row = 0; row < rows.labels.size(); ++row) {
    const std::string& label = rows.labels[row];
    double number = 0;
    if (const auto found = by_text.find(label); found != by_text.end()) {
      indices.push_back(found->second);
    } else if (csv_number(label, &number, form.numbers) && by_number.count(number) > 0) {
      indices.push_back(by_number[number]);
    } else {
      fail_file(kind, csv.path(), "row ", rows.places[row] + 1, " has the label ", in_quotes(label),
                ", which is not among the ", classes.size(), " classes of the model");
    }
  }
  return indices;
}

}  // namespace bie::formats
