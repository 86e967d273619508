// Answers about images and rows: the likeliest classes of each, or a number.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/samples.h"
#include "cli/commands/commands.h"

namespace bie::cli {

struct Guess {
  std::string name;
  double probability;
};

struct Prediction {
  std::string file;
  std::string place = {};                          ///< place_of it
  std::int64_t index = 0;                          ///< among the file's images or rows
  bool is_row = false;                             ///< of a table
  std::vector<Guess> guesses = {};                 ///< the likeliest first; none of a regression
  double value = 0;                                ///< of a regression, in the table's unit
  std::vector<double> probabilities = {};          ///< of all classes in their order, where they are wanted
  std::optional<std::string> id = {}, label = {};  ///< that a table has of it
};

struct Predictions {
  std::string model;
  bool regression = false;
  std::optional<formats::TableForm> table = {};  ///< of the model: how it writes labels and answers
  std::vector<std::string> classes = {};  ///< whose probabilities the CSV file has; the likeliest's alone if none
  bool top = false;                       ///< --top is given, which a CSV file has no place for
  std::string id_name = {};               ///< of the tables' ids
  bool tables = true;                     ///< all that was read are tables
  std::vector<Prediction> all = {};
};

/// A model's form with the numbers that a user says.
std::optional<formats::TableForm> asked_form(const std::optional<formats::TableForm>& form,
                                             const formats::AskedTable& asked);

/// The prediction of row `index` of a file, without an answer.
Prediction prediction_of(const std::string& file, const formats::Samples& samples, std::int64_t index);

/// "digits.npy[3]", "flowers.csv row 4": the number of the image, from 0 on, or of the row, from 1 on as in a table of
/// answers, where a file holds several.
std::string place_of(const std::string& file, const formats::Samples& samples, std::int64_t index);

/// Options of `predict` about its answers.
struct AnswerOptions {
  std::string out;             ///< the CSV file
  int top = 3;                 ///< classes to name
  bool top_given = false;      ///< by the user
  bool probabilities = false;  ///< of all classes, in the CSV file
};
void add_answer_options(CLI::App& command, AnswerOptions& options);

/// The files with those of folders in the place of these: pictures, arrays and tables by their endings, sorted. Others
/// are counted in the log. An Error for a folder without such files.
std::vector<std::string> files_in(const std::vector<std::string>& paths);

/// An Error where `out` cannot be written or is among the files that are read. To be called before the work.
void check_predictions_file(const std::string& out, const std::string& model, const std::vector<std::string>& inputs);

/// The result of `bie predict`: a line an image; of tables, where no terminal reads it, a CSV file with the rows' ids
/// (their numbers from 1 on where there are none), the answer, its probability or those of all classes, and the labels
/// that stood in the table. Where `out` is not empty the CSV file goes there. Scores against the labels go to the log.
void print_predictions(const Predictions& predictions, const std::string& out, const Global& global);

}  // namespace bie::cli
