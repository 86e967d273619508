#include "bie/formats/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "bie/formats/error.h"
#include "formats/lower.h"
#include "formats/number_text.h"
#include "formats/table_header.h"
#include "formats/table_label.h"
#include "formats/table_place.h"

namespace bie::formats {
namespace {

constexpr const char* kind = table_kind;
constexpr std::int64_t most_texts = 100, most_features = 1 << 16;

[[noreturn]] void fail_missing(const Place& place) {
  fail_file(kind, place.csv.path(), place,
            ", a value is wanted; --missing mean puts another in its place, --missing drop leaves the row out");
}

/// Whether the values count the rows: 0, 1, 2 or 1, 2, 3.
bool counts_rows(const CsvText& csv, std::int64_t column, std::int64_t first) {
  double before = 0;
  for (std::int64_t row = first; row < csv.rows(); ++row) {
    double value = 0;
    if (!csv_number(csv.at(row, column), &value)) return false;
    if (row == first ? value != 0 && value != 1 : value != before + 1) return false;
    before = value;
  }
  return csv.rows() - first > 2;
}

bool names_rows(std::string_view text) {
  const std::string word = lower(std::string(text));
  return word.empty() || word == "id" || word == "index" || word == "rownames" || word == "unnamed: 0";
}

/// A column of inputs, and whether it holds what is missing.
TableColumn learn_column(const CsvText& csv, std::int64_t column, std::int64_t first, Missing missing,
                         const std::string& name) {
  std::int64_t numbers = 0, others = 0, blanks = 0, written = 0;
  double sum = 0;
  std::optional<std::int64_t> other, blank;
  std::set<std::string> texts;
  for (std::int64_t row = first; row < csv.rows(); ++row) {
    const std::string_view field = csv.at(row, column);
    double value = 0;
    if (csv_number(field, &value)) {
      sum += value;
      ++numbers;
    } else if (csv_is_missing(field)) {
      if (++blanks == 1) blank = row;
    } else {
      if (++others == 1) other = row;
      written += is_written_as_a_number(field);
    }
    if (!csv_is_missing(field) && static_cast<std::int64_t>(texts.size()) <= most_texts) texts.emplace(field);
  }
  if (numbers + others == 0)
    fail_file(kind, csv.path(), "column ", column + 1, " has no value; --drop ", name.empty() ? "COLUMN" : name,
              " leaves it out");
  if (blank && missing == Missing::refuse) fail_missing({csv, *blank, column});
  TableColumn found{.name = name};
  found.marked = blanks > 0 && missing == Missing::mean;
  if (numbers >= others) {
    if (other) fail_file(kind, csv.path(), Place{csv, *other, column}, ", a number is wanted");
    found.mean = sum / static_cast<double>(numbers);
    return found;
  }
  if (written == others)
    fail_file(kind, csv.path(), Place{csv, *other, column},
              ": numbers have a decimal point, and no commas, blanks or signs such as %; --drop ",
              name.empty() ? std::to_string(column + 1) : name, " leaves the column out");
  if (static_cast<std::int64_t>(texts.size()) > most_texts)
    fail_file(kind, csv.path(), Place{csv, *other, column}, ", and the column has more than ", most_texts,
              " different texts; --drop ", name.empty() ? std::to_string(column + 1) : name, " leaves it out, --id ",
              name.empty() ? "COLUMN" : name, " keeps it beside the answers");
  found.values.assign(texts.begin(), texts.end());
  return found;
}

/// Where a form's columns stand in a file.
struct Places {
  std::vector<std::int64_t> columns;
  std::int64_t label = -1, id = -1, first = 0;  // first: 1 behind a header
};

/// The header of a file for a model whose columns have names.
Places find_named(const CsvText& csv, const TableForm& form, Labels labels, const std::vector<std::string>& drop) {
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
  Places places;
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

Places find_by_place(const CsvText& csv, const TableForm& form, Labels labels) {
  const std::int64_t all = csv.columns(), inputs = static_cast<std::int64_t>(form.columns.size());
  if (all != inputs + 1 && (all != inputs || labels == Labels::wanted))
    fail_file(kind, csv.path(), "has ", all, " columns, ", inputs, " are wanted",
              labels == Labels::wanted ? " and a label" : ", or one more with labels");
  Places places;
  places.first = has_header(csv) ? 1 : 0;
  if (all == inputs + 1) {
    places.label = form.label_place >= 0 ? form.label_place : all - 1;
    if (form.label_place < 0 && places.first == 1)
      for (std::int64_t i = all; i-- > 0;)
        if (label_rank(csv.at(0, i)) < std::size(label_names)) places.label = i;
  }
  for (std::int64_t i = 0; i < all; ++i)
    if (i != places.label) places.columns.push_back(i);
  return places;
}

/// Puts the features of a value behind the others; false where it is missing and the form does not say what then.
void add_features(const Place& place, const TableForm& form, const TableColumn& column, std::vector<float>* values) {
  const std::string_view field = place.csv.at(place.row, place.column);
  const bool missing =
      csv_is_missing(field) && std::find(column.values.begin(), column.values.end(), field) == column.values.end();
  if (missing && form.missing != Missing::mean) fail_missing(place);
  if (column.values.empty()) {
    double value = column.mean;
    if (!missing && !csv_number(field, &value)) fail_file(kind, place.csv.path(), place, ", a number is wanted");
    values->push_back(static_cast<float>(value));
  } else {
    const auto found = std::lower_bound(column.values.begin(), column.values.end(), field);
    const bool known = found != column.values.end() && *found == field;
    if (!known && !missing)
      fail_file(kind, place.csv.path(), place, ", the model was trained with ", listed(column.values));
    for (auto at = column.values.begin(); at != column.values.end(); ++at)
      values->push_back(known && at == found ? 1.0f : 0.0f);
  }
  if (column.marked) values->push_back(missing ? 1.0f : 0.0f);
}

}  // namespace

const char* name(Missing missing) {
  return missing == Missing::refuse ? "refuse" : missing == Missing::mean ? "mean" : "drop";
}

std::int64_t TableForm::features() const {
  std::int64_t all = 0;
  for (const TableColumn& column : columns) all += column.features();
  return all;
}

TableForm plain_form(std::int64_t features) {
  TableForm form;
  form.named = false;
  form.columns.resize(static_cast<std::size_t>(features));
  return form;
}

LearntTable learn_table(const CsvText& csv, const TableOptions& options) {
  LearntTable learnt;
  TableForm& form = learnt.form;
  form.named = has_header(csv);
  form.missing = options.missing;
  form.regression = options.regression;
  form.test_share = options.test_share;
  form.checksum = csv.checksum();
  const std::int64_t all = csv.columns(), first = form.named ? 1 : 0;
  if (all < 2)
    fail_file(kind, csv.path(), "has ", all, " columns, inputs and a label are wanted",
              all == 1 ? "; commas, semicolons or tabs stand between columns" : "");
  if (csv.rows() == first) fail_file(kind, csv.path(), "has a header and no rows");
  const std::vector<std::string> names = form.named ? names_of(csv) : std::vector<std::string>();
  const auto name_at = [&](std::int64_t i) { return form.named ? names[static_cast<std::size_t>(i)] : ""; };

  std::set<std::int64_t> left_out;
  for (const std::string& column : options.drop) left_out.insert(place_of(csv, names, column));
  std::int64_t id = -1;
  if (!options.id.empty()) {
    if (!form.named) fail_file(kind, csv.path(), "has no line of names, --id is the name of a column");
    id = place_of(csv, names, options.id);
    form.id = name_at(id);
  }
  const std::int64_t label = options.label.empty() ? choose_label(csv, names, left_out, id, &learnt.notes)
                                                   : place_of(csv, names, options.label);
  if (label == id || left_out.count(label) > 0)
    fail_file(kind, csv.path(), "column ", label + 1, " cannot be the label and be left out");
  form.label = name_at(label);
  if (!form.named) form.label_place = label;

  for (std::int64_t i = 0; i < all; ++i) {
    if (i == label || i == id || left_out.count(i) > 0) continue;
    if (form.named && names_rows(csv.at(0, i)) && counts_rows(csv, i, first)) {
      left_out.insert(i);
      learnt.notes.push_back(joined(in_quotes(name_at(i)), " counts the rows and is left out"));
      continue;
    }
    form.columns.push_back(learn_column(csv, i, first, options.missing, name_at(i)));
  }
  if (!form.named && !left_out.empty())
    fail_file(kind, csv.path(), "has no line of names, which --drop wants: columns are found by their places");
  for (const std::int64_t i : left_out) form.left_out.push_back(name_at(i));
  if (form.columns.empty()) fail_file(kind, csv.path(), "has a label and no inputs");
  if (form.features() > most_features)
    fail_file(kind, csv.path(), "has ", form.features(), " numbers a row, at most ", most_features, " are wanted");
  if (options.regression) {
    const Moments target = learn_target(csv, label, first, options.missing);
    form.mean = target.mean;
    form.scale = target.scale;
  } else {
    learnt.classes = learn_classes(csv, label, first, options.missing);
  }
  return learnt;
}

TableRows read_table(const CsvText& csv, const TableForm& form, Labels labels, const std::vector<std::string>& drop) {
  const Places places = form.named ? find_named(csv, form, labels, drop) : find_by_place(csv, form, labels);
  TableRows rows;
  for (std::int64_t row = places.first; row < csv.rows(); ++row) {
    const auto is_missing = [&](std::int64_t column) { return csv_is_missing(csv.at(row, column)); };
    const bool no_label = labels == Labels::wanted && is_missing(places.label);
    if (form.missing == Missing::drop && labels == Labels::wanted &&
        (no_label || std::any_of(places.columns.begin(), places.columns.end(), is_missing))) {
      ++rows.dropped;
      continue;
    }
    if (no_label)
      fail_file(kind, csv.path(), Place{csv, row, places.label},
                ", a label is wanted; --missing drop leaves the row out");
    for (std::size_t i = 0; i < form.columns.size(); ++i)
      add_features({csv, row, places.columns[i]}, form, form.columns[i], &rows.values);
    if (places.label >= 0) rows.labels.emplace_back(csv.at(row, places.label));
    if (places.id >= 0) rows.ids.emplace_back(csv.at(row, places.id));
    rows.places.push_back(row - places.first);
    ++rows.count;
  }
  if (rows.count == 0)
    fail_file(kind, csv.path(), rows.dropped > 0 ? "has a missing value in each row" : "has a header and no rows");
  return rows;
}

std::vector<double> label_numbers(const CsvText& csv, const TableRows& rows) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < rows.labels.size(); ++i) {
    double value = 0;
    if (!csv_number(rows.labels[i], &value))
      fail_file(kind, csv.path(), "row ", rows.places[i] + 1, ": the label is ", in_quotes(rows.labels[i]),
                ", a number is wanted");
    numbers.push_back(value);
  }
  return numbers;
}

}  // namespace bie::formats
