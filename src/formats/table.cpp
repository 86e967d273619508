#include "bie/formats/table.h"

#include <algorithm>
#include <optional>
#include <set>

#include "bie/formats/error.h"
#include "formats/table_column.h"
#include "formats/table_header.h"
#include "formats/table_label.h"
#include "formats/table_place.h"

namespace bie::formats {
namespace {

constexpr const char* kind = table_kind;
constexpr std::int64_t most_features = 1 << 16;

/// Columns of a file, by what a user says of them; -1 where nothing is said.
struct Chosen {
  std::set<std::int64_t> left_out, kept;
  std::int64_t id = -1, key = -1, label = -1;
};

Chosen choose(const CsvText& csv, const TableOptions& options, const std::vector<std::string>& names,
              std::vector<std::string>* notes) {
  Chosen chosen;
  for (const std::string& column : options.drop) chosen.left_out.insert(place_of(csv, names, column));
  for (const std::string& column : options.keep) chosen.kept.insert(place_of(csv, names, column));
  const auto named = [&](const std::string& column, const char* option) {
    if (names.empty()) fail_file(kind, csv.path(), "has no line of names, ", option, " is the name of a column");
    return place_of(csv, names, column);
  };
  if (!options.id.empty()) chosen.id = named(options.id, "--id");
  if (!options.split.column.empty()) {
    chosen.key = named(options.split.column, "--split group: or time:");
    if (chosen.kept.count(chosen.key) == 0 && chosen.left_out.insert(chosen.key).second && chosen.key != chosen.id)
      notes->push_back(joined(in_quotes(names[static_cast<std::size_t>(chosen.key)]),
                              " tells the rows apart and is no input; --keep takes it in"));
  }
  chosen.label = options.label.empty() ? choose_label(csv, names, chosen.left_out, chosen.id, notes)
                                       : place_of(csv, names, options.label);
  if (chosen.label == chosen.id || chosen.left_out.count(chosen.label) > 0)
    fail_file(kind, csv.path(), "column ", chosen.label + 1, " cannot be the label and be left out");
  for (const std::int64_t column : chosen.kept)
    if (column == chosen.label || column == chosen.id || chosen.left_out.count(column) > 0)
      fail_file(kind, csv.path(), "column ", column + 1, " cannot be kept as an input and be ",
                column == chosen.label ? "the label" : "left out");
  return chosen;
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
  form.version = 2;
  form.named = has_header(csv, options.header, options.numbers, &learnt.notes);
  form.missing = options.missing;
  form.numbers = AskedTable().over(options.numbers);
  form.regression = options.regression;
  form.test_share = options.test_share;
  form.split = options.split;
  form.checksum = csv.checksum();
  const std::int64_t all = csv.columns(), first = form.named ? 1 : 0;
  if (all < 2)
    fail_file(kind, csv.path(), "expected inputs and a label, got ", all,
              all == 1 ? " column; commas, semicolons or tabs stand between columns" : " columns");
  if (csv.rows() == first) fail_file(kind, csv.path(), "has a header and no rows");
  if (csv.trailing_separator())
    learnt.notes.emplace_back("each line ends in a separator: the empty column behind it is left out");
  const std::vector<std::string> names = form.named ? names_of(csv) : std::vector<std::string>();
  const auto name_at = [&](std::int64_t i) { return form.named ? names[static_cast<std::size_t>(i)] : ""; };

  Chosen chosen = choose(csv, options, names, &learnt.notes);
  form.id = chosen.id < 0 ? "" : name_at(chosen.id);
  form.label = name_at(chosen.label);
  if (!form.named) form.label_place = chosen.label;
  if (!options.regression)
    learnt.classes = learn_classes(csv, chosen.label, first, options);
  else
    check_target(csv, chosen.label, first, options);
  std::string ids;  // options that take columns of ids in
  for (std::int64_t i = 0; i < all; ++i) {
    if (i == chosen.label || i == chosen.id || chosen.left_out.count(i) > 0) continue;
    const bool kept = chosen.kept.count(i) > 0;
    const std::string option = form.named ? name_at(i) : std::to_string(i + 1);
    if (const std::string reason = kept ? "" : id_reason(csv, i, first, options.numbers, name_at(i)); !reason.empty()) {
      chosen.left_out.insert(i);
      ids += " --keep " + option;
      learnt.notes.push_back(joined(form.named ? in_quotes(name_at(i)) : "column " + option, " ", reason,
                                    " and is left out; --keep ", option, " takes it in"));
      continue;
    }
    form.columns.push_back(learn_column(csv, i, first, options, name_at(i), kept, &learnt.notes));
    if (!form.named) form.places.push_back(i);
  }
  if (!form.named && chosen.left_out.empty()) form.places.clear();
  if (!form.places.empty()) form.width = all;
  for (const std::int64_t i : chosen.left_out)
    if (form.named) form.left_out.push_back(name_at(i));
  if (form.columns.empty())
    fail_file(kind, csv.path(), "has a label and no inputs", ids.empty() ? "" : ": ids are left out;", ids,
              ids.empty() ? "" : " takes them in");
  if (form.features() > most_features)
    fail_file(kind, csv.path(), "expected at most ", most_features, " numbers a row, got ", form.features());
  return learnt;
}

}  // namespace bie::formats
