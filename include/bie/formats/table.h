// Roles of a table's columns in a model: numbers, texts, the label.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/csv.h"

namespace bie::formats {

/// How rows with missing values are handled.
enum class Missing {
  refuse,  ///< nothing: a sentence names the place
  mean,    ///< the mean of the training rows stands in its place; of a text, none of its values
  drop,    ///< the row is left out
};
/// "refuse", "mean" or "drop".
const char* name(Missing missing);

/// asinh((x - center) / width): linear near the center, a logarithm far from it. It gives a column with a heavy tail a
/// shape near to a normal one.
struct Curve {
  double center = 0, width = 1;
  double of(double value) const;
  double inverse(double value) const;
};

struct TableColumn {
  std::string name;                      ///< empty in a table without a header
  std::vector<std::string> values = {};  ///< of a text, sorted: a feature each, 1 where it is the row's, else 0
  bool others = false;                   ///< of a text, one feature more: 1 where the value is none of `values`
  double mean = 0;                       ///< of a number
  bool marked = false;              ///< one feature more: 1 where the value is missing, which it was in a training row
  std::optional<Curve> curve = {};  ///< of a number: its feature is made of curve->of(value)
  /// One of each per feature: the net's input is (feature - center) / scale, or 0 where the scale is 0. Empty lists
  /// leave features as they are.
  std::vector<double> centers = {}, scales = {};
  std::int64_t features() const {
    return (values.empty() ? 1 : static_cast<std::int64_t>(values.size())) + (others ? 1 : 0) + (marked ? 1 : 0);
  }
};

/// How the rows of one file are told apart for training and testing.
enum class SplitKind {
  order,    ///< those for testing stand at equal distances among the rows of each class
  shuffle,  ///< a random share of each class
  group,    ///< rows with the same value in a column stay together
  time,     ///< those with the largest values in a column are for testing
};
/// "order", "shuffle", "group" or "time".
const char* name(SplitKind kind);
struct SplitRule {
  SplitKind kind = SplitKind::order;
  std::uint64_t seed = 0;
  std::string column = {};  ///< of groups or times
};

/// How a table is read for one model. Kept in the model's file.
struct TableForm {
  /// 1: of older builds, whose nets begin with a BatchNorm and whose answers the net itself brings into the table's
  /// unit; 2: inputs are scaled as they are read, and so are the net's answers.
  int version = 1;
  std::vector<TableColumn> columns;       ///< the inputs, in the order of the model's
  bool named = true;                      ///< columns are found by their names; by their places if not
  std::string label;                      ///< name of the label's column
  std::int64_t label_place = -1;          ///< in a table without names; -1: the last column where there is one more
  std::vector<std::int64_t> places = {};  ///< in a table without names, of the inputs; empty: all but the label
  std::int64_t width = 0;                 ///< columns of such a table, where `places` is not empty
  std::string id;                         ///< name of a column that tells rows apart; empty: there is none
  std::vector<std::string> left_out;      ///< names of columns that are not read
  Missing missing = Missing::refuse;
  NumberForm numbers = {};
  bool regression = false;          ///< the label is a number to be predicted: (label - mean) / scale is learnt
  double mean = 0, scale = 1;       ///< of the labels of the training rows, behind their curve
  std::optional<Curve> curve = {};  ///< of the label
  double least = 0, most = 0;       ///< labels of the training rows, where there is a curve: answers stay near them
  int decimals = 0;                 ///< most digits behind the decimal sign of a label
  double test_share = 0.2;          ///< of the rows of the training file
  SplitRule split = {};
  std::uint32_t checksum = 0;  ///< CRC-32C of the training file; 0: it is not known

  std::int64_t features() const;
  /// The number that a net learns for a label, and the label that such a number stands for.
  double learnt(double labelled) const;
  double label_of(double target) const;
  /// The label that a net's output stands for: like label_of, but behind a curve, where a small error of the net may be
  /// any number, it stays near the labels of the training rows.
  double answer(double output) const;
};

/// A number that a net predicts, with the digits of the table's labels and with those that its error leaves.
std::string answer_text(const TableForm& form, double answer);

/// A user's description of a table; anything unset is detected.
struct TableOptions {
  std::string label;  ///< a name, or a place from 1 on; empty: label, class, target or y, else the last
  std::string id;
  std::vector<std::string> drop;  ///< names or places of columns to leave out
  std::vector<std::string> keep;  ///< of columns that look like ids and are inputs all the same
  Missing missing = Missing::refuse;
  bool regression = false;
  double test_share = 0.2;
  SplitRule split = {SplitKind::shuffle};
  std::optional<bool> header = {};  ///< whether the first line has names
  NumberForm numbers = {};
};

struct LearntTable {
  TableForm form;
  std::vector<std::string> classes;  ///< names, numbers in their order, else sorted; none of a regression
  std::vector<std::string> notes;    ///< sentences about what was found out
};

/// Numbers, where at least half of the values of a column are, and texts elsewhere: those of more than 100 values have
/// an input for each of the 100 most frequent ones and one for the others. Columns of nearly distinct whole numbers are
/// ids and left out. The form leaves inputs and labels unscaled: see learn_scales.
/// @throws Error, one sentence naming the file, and the line and the column where there is one: also for labels that
/// look like the numbers of a regression.
LearntTable learn_table(const CsvText& csv, const TableOptions& options);

/// Takes means, curves and scales of inputs and labels from the training rows.
/// @param rows   of the file, from 0 on behind the header, as TableRows::places has them
/// @param notes  gets a sentence for a column whose values a net cannot tell apart
/// @throws Error where all labels of a regression are equal
void learn_scales(const CsvText& csv, const std::vector<std::int64_t>& rows, TableForm* form,
                  std::vector<std::string>* notes);

/// The form of a table of `features` numbers without names, as models of images and of older builds read them.
TableForm plain_form(std::int64_t features);

struct TableRows {
  std::int64_t count = 0;
  std::vector<float> values;         ///< [count, features]
  std::vector<std::string> labels;   ///< one per row, as it stands; none where the table has no such column
  std::vector<std::string> ids;      ///< likewise
  std::vector<std::string> keys;     ///< likewise, of the column of groups or times
  std::vector<std::int64_t> places;  ///< of each row among all of the file, from 0 on
  std::int64_t dropped = 0;          ///< rows left out for a missing value
  std::vector<std::string> notes;    ///< sentences about values that the training rows lack
};

enum class Labels {
  wanted,    ///< there is a column of labels and none is missing
  optional,  ///< rows are asked about: they may have labels
};

/// A user's options for a table that a model is asked about.
struct AskedTable {
  std::vector<std::string> drop = {};  ///< names of columns to leave out that the form does not know
  bool refuse_unseen = false;          ///< texts that training lacked are refused; else they are none of the known ones
  std::optional<bool> header = {};     ///< whether the first line has names, of a form without names
  // In place of the form's NumberForm.
  std::optional<char> decimal = {}, thousands = {};
  std::optional<std::vector<std::string>> missing = {};
  /// @throws Error where one sign would mean two things
  NumberForm over(NumberForm numbers) const;
};

/// The rows as the form has it.
/// @throws Error, one sentence naming the file, and the line and the column where there is one.
TableRows read_table(const CsvText& csv, const TableForm& form, Labels labels, const AskedTable& asked = {});

/// The labels' numbers. @throws Error where one is none.
std::vector<double> label_numbers(const CsvText& csv, const TableForm& form, const TableRows& rows);

/// The class that each row's label names; 1, 1.0 and 01 are the same one. @throws Error for a label that names none.
std::vector<std::int64_t> label_classes(const CsvText& csv, const TableForm& form, const TableRows& rows,
                                        const std::vector<std::string>& classes);

/// Indices of rows, each in the order of the file.
struct SplitRows {
  std::vector<std::int64_t> train, other;
};
/// The rows by form.split.
/// @param share   of the rows, for the other purpose
/// @param rows    candidates, in the order of the file
/// @param labels  class of each row of the table; empty: rows have no classes
/// @param keys    of each row of the table, where the split is by a column
/// @throws Error that begins with `what` where one of the two would be empty.
SplitRows split_table(const TableForm& form, double share, const std::vector<std::int64_t>& rows,
                      const std::vector<std::int64_t>& labels, const std::vector<std::string>& keys,
                      const std::string& what, const char* purpose);

/// The rows of one of `folds` parts, `fold`, which have as many rows of each class or, of a split by groups, whole
/// groups; each row is in one of them. Parameters as above.
/// @throws Error also for a split by time, whose rows are not dealt out.
SplitRows fold_table(const TableForm& form, int folds, int fold, const std::vector<std::int64_t>& rows,
                     const std::vector<std::int64_t>& labels, const std::vector<std::string>& keys,
                     const std::string& what);

/// A form as JSON, and back. @throws Error, one sentence that names the field.
std::string table_json(const TableForm& form);
TableForm parse_table(const std::string& json);

}  // namespace bie::formats
