#include "bie/formats/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "bie/formats/error.h"
#include "formats/lower.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "CSV file";
constexpr std::int64_t most_texts = 100, most_classes = 10000, most_features = 1 << 16;

bool is_number(std::string_view text) {
  double ignored = 0;
  return csv_number(text, &ignored);
}

constexpr std::string_view label_names[] = {"label", "class", "target", "y"};

/// Where a name stands among those of labels, the surest first; their number where it is none.
std::size_t label_rank(std::string_view text) {
  const std::string word = lower(std::string(text));
  return static_cast<std::size_t>(std::find(std::begin(label_names), std::end(label_names), word) -
                                  std::begin(label_names));
}

bool names_labels(std::string_view text) { return label_rank(text) < std::size(label_names); }

/// Whether people would read a text as a number that this reader does not: "0,5", "1,200", "12 %", "$3".
bool is_written_as_a_number(std::string_view text) {
  constexpr std::string_view signs[] = {"+", "-", "%", "$", " ", "\xe2\x82\xac", "\xc2\xa3"};  // euro, pound
  bool marked = false;
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view sign : signs) {
      const bool front = text.starts_with(sign), back = !front && text.ends_with(sign);
      if (!front && !back) continue;
      front ? text.remove_prefix(sign.size()) : text.remove_suffix(sign.size());
      again = true;
      marked |= sign != "+" && sign != "-";
    }
  }
  marked |= text.find_first_of(",' ") != std::string_view::npos;
  return marked && text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_not_of("0123456789.,' ") == std::string_view::npos;
}

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
    if (is_number(field))
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

/// A header has names where rows have numbers, or only texts that no row has; a row with a missing number is a row.
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

/// The names of a header; of empty ones their places.
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

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), shown); ++i) text += (i == 0 ? "" : ", ") + in_quotes(names[i]);
  return names.size() > shown ? text + " and " + std::to_string(names.size() - shown) + " more" : text;
}

/// The column that a user names: by its name, else by its place from 1 on.
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

struct Place {
  const CsvText& csv;
  std::int64_t row, column;
};
std::ostream& operator<<(std::ostream& out, const Place& p) {
  return out << "line " << p.csv.line(p.row) << ", column " << p.column + 1 << " is "
             << in_quotes(p.csv.at(p.row, p.column));
}

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

/// The classes of a column of labels; a sentence where they look like the numbers of a regression, or like names of
/// rows.
std::vector<std::string> learn_classes(const CsvText& csv, std::int64_t column, std::int64_t first, Missing missing) {
  std::map<double, std::string> numbers;
  std::set<std::string> texts;
  std::int64_t count = 0;
  bool fractions = false;
  for (std::int64_t row = first; row < csv.rows(); ++row) {
    const std::string_view field = csv.at(row, column);
    if (csv_is_missing(field)) {
      if (missing == Missing::drop) continue;
      fail_file(kind, csv.path(), Place{csv, row, column}, ", a label is wanted; --missing drop leaves the row out");
    }
    ++count;
    double value = 0;
    if (csv_number(field, &value)) {
      numbers.emplace(value, field);
      fractions |= value != std::floor(value);
    }
    texts.emplace(field);
  }
  const bool all_numbers = std::all_of(texts.begin(), texts.end(), is_number);
  const auto different = static_cast<std::int64_t>(all_numbers ? numbers.size() : texts.size());
  const std::string name = in_quotes(first == 0 ? std::to_string(column + 1) : std::string(csv.at(0, column)));
  if (different == 1) fail_file(kind, csv.path(), "has one label, ", in_quotes(*texts.begin()), ", two are wanted");
  if (different > 20 && (5 * different > count || (all_numbers && fractions)))
    fail_file(kind, csv.path(), "column ", name, " has ", different, " different labels in ", count, " rows: ",
              all_numbers ? "if it is a number to be predicted, --task regression is wanted; "
                          : "texts that name rows are no classes; ",
              "if another column is the label, --label NAME");
  if (different > most_classes)
    fail_file(kind, csv.path(), "has ", different, " different labels, at most ", most_classes, " are wanted");
  std::vector<std::string> classes;
  if (all_numbers)
    for (const auto& [value, text] : numbers) classes.push_back(text);
  else
    classes.assign(texts.begin(), texts.end());
  return classes;
}

struct Moments {
  double mean = 0, scale = 1;
};

Moments learn_target(const CsvText& csv, std::int64_t column, std::int64_t first, Missing missing) {
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  for (int pass = 0; pass < 2; ++pass)
    for (std::int64_t row = first; row < csv.rows(); ++row) {
      double value = 0;
      if (!csv_number(csv.at(row, column), &value)) {
        if (csv_is_missing(csv.at(row, column)) && missing == Missing::drop) continue;
        fail_file(kind, csv.path(), Place{csv, row, column}, ", the number to be predicted is wanted");
      }
      if (pass == 0) {
        sum += value;
        ++count;
      } else {
        squares += (value - sum / static_cast<double>(count)) * (value - sum / static_cast<double>(count));
      }
    }
  if (count == 0 || squares == 0) fail_file(kind, csv.path(), "all labels are equal, there is nothing to predict");
  return {sum / static_cast<double>(count), std::sqrt(squares / static_cast<double>(count))};
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
        if (names_labels(csv.at(0, i))) places.label = i;
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
  std::int64_t id = -1, label = all - 1;
  if (!options.id.empty()) {
    if (!form.named) fail_file(kind, csv.path(), "has no line of names, --id is the name of a column");
    id = place_of(csv, names, options.id);
    form.id = name_at(id);
  }
  if (!options.label.empty()) {
    label = place_of(csv, names, options.label);
  } else {
    while (label > 0 && (left_out.count(label) > 0 || label == id)) --label;
    std::size_t rank = std::size(label_names);
    bool several = false;
    for (std::int64_t i = 0; form.named && i < all; ++i) {
      const std::size_t own = label_rank(csv.at(0, i));
      if (own == std::size(label_names) || left_out.count(i) > 0) continue;
      several |= rank < std::size(label_names);
      if (own >= rank) continue;
      label = i;
      rank = own;
    }
    if (several)
      learnt.notes.push_back(
          joined("the label is the column ", in_quotes(name_at(label)), "; --label NAME takes another"));
    if (rank == std::size(label_names))
      learnt.notes.push_back(form.named ? joined("the label is the column ", in_quotes(name_at(label)),
                                                 label == all - 1 ? ", the last; --label NAME takes another" : "")
                                        : joined("the label is column ", label + 1, "; --label N takes another"));
  }
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
