// What the columns of a table mean to a model: which are numbers, which are texts, which is the label.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/formats/csv.h"

namespace bie::formats {

/// What becomes of a row in which a value is missing.
enum class Missing {
  refuse,  ///< nothing: a sentence names the place
  mean,    ///< the mean of the training rows stands in its place; of a text, none of its values
  drop,    ///< the row is left out
};
/// "refuse", "mean" or "drop".
const char* name(Missing missing);

struct TableColumn {
  std::string name;                      ///< empty in a table without a header
  std::vector<std::string> values = {};  ///< of a text, sorted: a feature each, 1 where it is the row's, else 0
  double mean = 0;                       ///< of a number
  bool marked = false;  ///< one feature more: 1 where the value is missing, which it was in a training row
  std::int64_t features() const {
    return (values.empty() ? 1 : static_cast<std::int64_t>(values.size())) + (marked ? 1 : 0);
  }
};

/// How a table is read for one model. Kept in the model's file.
struct TableForm {
  std::vector<TableColumn> columns;   ///< the inputs, in the order of the model's
  bool named = true;                  ///< columns are found by their names; by their places if not
  std::string label;                  ///< name of the label's column
  std::int64_t label_place = -1;      ///< in a table without names; -1: the last column where there is one more
  std::string id;                     ///< name of a column that tells rows apart; empty: there is none
  std::vector<std::string> left_out;  ///< names of columns that are not read
  Missing missing = Missing::refuse;
  bool regression = false;     ///< the label is a number to be predicted: (label - mean) / scale is learnt
  double mean = 0, scale = 1;  ///< of the labels of the training rows
  double test_share = 0.2;     ///< of the rows of the training file
  std::uint32_t checksum = 0;  ///< CRC-32C of the training file; 0: it is not known

  std::int64_t features() const;
};

/// What a user says of a table; what is not said is found out.
struct TableOptions {
  std::string label;  ///< a name, or a place from 1 on; empty: label, class, target or y, else the last
  std::string id;
  std::vector<std::string> drop;  ///< names or places of columns to leave out
  Missing missing = Missing::refuse;
  bool regression = false;
  double test_share = 0.2;
};

struct LearntTable {
  TableForm form;
  std::vector<std::string> classes;  ///< names, numbers in their order, else sorted; none of a regression
  std::vector<std::string> notes;    ///< sentences about what was found out
};

/// Numbers, where at least half of the values of a column are, and texts of at most 100 values elsewhere. A column
/// without a name, or named id, index or rownames, that counts the rows is left out.
/// @throws Error, one sentence naming the file, and the line and the column where there is one: also for labels that
/// look like the numbers of a regression.
LearntTable learn_table(const CsvText& csv, const TableOptions& options);

/// The form of a table of `features` numbers without names, as models of images and of older builds read them.
TableForm plain_form(std::int64_t features);

struct TableRows {
  std::int64_t count = 0;
  std::vector<float> values;         ///< [count, features]
  std::vector<std::string> labels;   ///< one a row, as it stands; none where the table has no such column
  std::vector<std::string> ids;      ///< likewise
  std::vector<std::int64_t> places;  ///< of each row among all of the file, from 0 on
  std::int64_t dropped = 0;          ///< rows left out for a missing value
};

enum class Labels {
  wanted,    ///< there is a column of labels and none is missing
  optional,  ///< rows are asked about: they may have labels
};

/// The rows as the form has it.
/// @param drop  names of columns to leave out that the form does not know.
/// @throws Error, one sentence naming the file, and the line and the column where there is one.
TableRows read_table(const CsvText& csv, const TableForm& form, Labels labels,
                     const std::vector<std::string>& drop = {});

/// The labels' numbers. @throws Error where one is none.
std::vector<double> label_numbers(const CsvText& csv, const TableRows& rows);

/// A form as JSON, and back. @throws Error, one sentence that names the field.
std::string table_json(const TableForm& form);
TableForm parse_table(const std::string& json);

}  // namespace bie::formats
