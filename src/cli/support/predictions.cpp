#include "cli/support/predictions.h"

#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

#include "bie/formats/csv.h"
#include "bie/formats/error.h"
#include "bie/formats/replacing_file.h"
#include "cli/support/command_files.h"
#include "cli/support/log.h"
#include "cli/support/result.h"
#include "cli/support/text.h"
#include "formats/lower.h"

namespace bie::cli {
namespace {

/// "digits.npy[3]: seven 97.31 %, one 1.20 %"
std::string text_of(const Prediction& p, const Predictions& all) {
  std::string line = p.place;
  if (all.regression) line += ": " + formats::answer_text(*all.table, p.value);
  for (std::size_t i = 0; i < p.guesses.size(); ++i)
    line += format("%s%s %.2f %%", i == 0 ? ": " : ", ", p.guesses[i].name.c_str(), 100 * p.guesses[i].probability);
  return printable(line) + "\n";
}

Json json_of(const Prediction& p, bool regression) {
  Json json = {{"file", p.file}, {"index", p.index}};
  if (p.is_row) json["row"] = p.index + 1;
  if (p.id) json["id"] = *p.id;
  if (regression) {
    json["value"] = p.value;
  } else {
    json["guesses"] = Json::array();
    for (const Guess& guess : p.guesses)
      json["guesses"].push_back({{"class", guess.name}, {"probability", guess.probability}});
  }
  if (p.label) json["label"] = *p.label;
  return json;
}

/// Scores of the answers against the labels.
struct Judged {
  std::int64_t labelled = 0;
  double accuracy = 0;       ///< share of the labelled that is right
  double mae = 0, rmse = 0;  ///< of a regression
};

bool is_right(const Prediction& p, const formats::NumberForm& numbers) {
  double answer = 0, label = 0;
  const std::string& name = p.guesses.front().name;
  return name == *p.label || (formats::csv_number(name, &answer, numbers) &&
                              formats::csv_number(*p.label, &label, numbers) && answer == label);
}

Judged judged(const Predictions& predictions) {
  Judged found;
  const formats::NumberForm numbers = predictions.table ? predictions.table->numbers : formats::NumberForm();
  for (const Prediction& p : predictions.all) {
    double label = 0;
    if (!p.label || formats::csv_is_missing_label(*p.label, numbers)) continue;
    if (predictions.regression) {
      if (!formats::csv_number(*p.label, &label, numbers)) continue;
      found.mae += std::abs(p.value - label);
      found.rmse += (p.value - label) * (p.value - label);
    } else {
      found.accuracy += is_right(p, numbers) ? 1 : 0;
    }
    ++found.labelled;
  }
  const auto count = static_cast<double>(std::max<std::int64_t>(found.labelled, 1));
  return {found.labelled, found.accuracy / count, found.mae / count, std::sqrt(found.rmse / count)};
}

std::string csv_of(const Predictions& predictions) {
  std::set<std::string> files;
  bool labels = false;
  for (const Prediction& p : predictions.all) {
    files.insert(p.file);
    labels |= p.label.has_value();
  }
  const bool ids = !predictions.all.empty() && predictions.all.front().id.has_value();
  std::string text = files.size() > 1 ? "file," : "";
  text += (ids ? formats::csv_field(predictions.id_name) : "row") + ",prediction";
  if (!predictions.regression && predictions.classes.empty()) text += ",probability";
  for (const std::string& name : predictions.classes) text += "," + formats::csv_field("p_" + name);
  text += labels ? ",label\n" : "\n";
  for (const Prediction& p : predictions.all) {
    if (files.size() > 1) text += formats::csv_field(p.file) + ",";
    text += ids ? formats::csv_field(p.id.value_or("")) : std::to_string(p.index + 1);
    text += "," + (predictions.regression ? formats::answer_text(*predictions.table, p.value)
                                          : formats::csv_field(p.guesses.front().name));
    if (!predictions.regression && predictions.classes.empty()) text += format(",%.6f", p.guesses.front().probability);
    for (const double probability : p.probabilities) text += format(",%.6f", probability);
    if (labels) text.append(",").append(formats::csv_field(p.label.value_or("")));
    text += '\n';
  }
  return text;
}

/// --top says nothing of a CSV file.
void check_top(const Predictions& predictions) {
  if (predictions.top)
    throw CLI::ValidationError("--top",
                               "is for lines and JSON; a CSV file has the likeliest class, and with "
                               "--probabilities all of them");
}

}  // namespace

void add_answer_options(CLI::App& command, AnswerOptions& options) {
  command.add_option("-o,--out", options.out, "where to write the answers (CSV)")
      ->type_name("FILE")
      ->check([](const std::string& name) { return name.empty() ? "the name is empty" : ""; });
  command
      .add_option_function<int>(
          "--top",
          [&options](int top) {
            options.top = top;
            options.top_given = true;
          },
          "classes to name")
      ->check(CLI::Range(1, 10000))
      ->type_name("INT")
      ->default_str("3");
  command.add_flag("--probabilities", options.probabilities, "a column of the CSV file for each class, p_NAME");
}

std::vector<std::string> files_in(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  static const std::set<std::string> endings{".png", ".jpg", ".jpeg", ".webp", ".npy", ".csv", ".tsv", ".gz"};
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (path == "-" || !fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    std::int64_t others = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
      const std::string ending = formats::lower(entry.path().extension().string());
      const bool taken = entry.is_regular_file(error) && endings.count(ending) > 0;
      others += taken ? 0 : 1;
      if (taken) found.push_back(entry.path().string());
    }
    if (found.empty()) throw formats::Error(path + ": the folder holds no pictures, arrays or tables");
    if (others > 0)
      log::info(format("%s: %lld other entries are left out", path.c_str(), static_cast<long long>(others)));
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

std::optional<formats::TableForm> asked_form(const std::optional<formats::TableForm>& form,
                                             const formats::AskedTable& asked) {
  std::optional<formats::TableForm> own = form;
  if (own) own->numbers = asked.over(own->numbers);
  return own;
}

Prediction prediction_of(const std::string& file, const formats::Samples& samples, std::int64_t index) {
  Prediction p{.file = file, .place = place_of(file, samples, index), .index = index, .is_row = samples.is_table};
  const auto at = static_cast<std::size_t>(index);
  if (at < samples.ids.size()) p.id = samples.ids[at];
  if (at < samples.labels.size()) p.label = samples.labels[at];
  return p;
}

std::string place_of(const std::string& file, const formats::Samples& samples, std::int64_t index) {
  if (samples.count == 1) return file;
  if (samples.is_table) return format("%s row %lld", file.c_str(), static_cast<long long>(index + 1));
  return format("%s[%lld]", file.c_str(), static_cast<long long>(index));
}

void check_predictions_file(const std::string& out, const std::string& model, const std::vector<std::string>& inputs) {
  CommandFiles files;
  files.reads(model, "the model's file");
  files.reads(inputs, "a file that is read");
  files.writes("--out", out);
}

void print_predictions(const Predictions& predictions, const std::string& out, const Global& global) {
  const bool piped_table = predictions.tables && out.empty() && ::isatty(STDOUT_FILENO) == 0 && !global.json;
  if (!out.empty() || piped_table) check_top(predictions);
  if (predictions.regression && !predictions.classes.empty())
    throw CLI::ValidationError("--probabilities", "is for classes, the model predicts a number");
  const Judged found = judged(predictions);
  if (!out.empty()) {
    const std::string text = csv_of(predictions);
    formats::ReplacingFile file("CSV file", out);
    file.write(text.data(), static_cast<std::int64_t>(text.size()));
    file.commit();
    log::info("predictions saved to " + out);
  }
  if (found.labelled > 0)
    log::info(predictions.regression ? format("mean error %.4g, root mean square %.4g of %lld rows with labels",
                                              found.mae, found.rmse, static_cast<long long>(found.labelled))
                                     : format("accuracy %.2f %% of %lld rows with labels", 100 * found.accuracy,
                                              static_cast<long long>(found.labelled)));
  if (global.json) {
    Json list = Json::array();
    for (const Prediction& p : predictions.all) list.push_back(json_of(p, predictions.regression));
    Json json = {{"model", predictions.model}, {"predictions", list}};
    if (found.labelled > 0) {
      json["labelled"] = found.labelled;
      if (predictions.regression)
        json.update(Json{{"mae", found.mae}, {"rmse", found.rmse}});
      else
        json["accuracy"] = found.accuracy;
    }
    print_json("predict", json);
  } else if (piped_table) {
    std::printf("%s", csv_of(predictions).c_str());
  } else if (out.empty()) {
    for (const Prediction& p : predictions.all) std::printf("%s", text_of(p, predictions).c_str());
  }
}

}  // namespace bie::cli
