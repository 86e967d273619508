#include "cli/support/predictions.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

#include "bie/formats/csv.h"
#include "bie/formats/error.h"
#include "bie/formats/replacing_file.h"
#include "cli/support/log.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

/// "digits.npy[3]: seven 97.31 %, one 1.20 %"
std::string text_of(const Prediction& p, bool regression) {
  std::string line = place_of(p.file, p.index, p.count);
  if (regression) line += format(": %.6g", p.value);
  for (std::size_t i = 0; i < p.guesses.size(); ++i)
    line += format("%s%s %.2f %%", i == 0 ? ": " : ", ", p.guesses[i].name.c_str(), 100 * p.guesses[i].probability);
  return printable(line) + "\n";
}

Json json_of(const Prediction& p, bool regression) {
  Json json = {{"file", p.file}, {"index", p.index}};
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

/// What the labels make of the answers.
struct Judged {
  std::int64_t labelled = 0;
  double accuracy = 0;       ///< share of the labelled that is right
  double mae = 0, rmse = 0;  ///< of a regression
};

bool is_right(const Prediction& p) {
  double answer = 0, label = 0;
  const std::string& name = p.guesses.front().name;
  return name == *p.label ||
         (formats::csv_number(name, &answer) && formats::csv_number(*p.label, &label) && answer == label);
}

Judged judged(const Predictions& predictions) {
  Judged found;
  for (const Prediction& p : predictions.all) {
    double label = 0;
    if (!p.label || formats::csv_is_missing(*p.label)) continue;
    if (predictions.regression) {
      if (!formats::csv_number(*p.label, &label)) continue;
      found.mae += std::abs(p.value - label);
      found.rmse += (p.value - label) * (p.value - label);
    } else {
      found.accuracy += is_right(p) ? 1 : 0;
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
  text += predictions.regression ? "" : ",probability";
  text += labels ? ",label\n" : "\n";
  for (const Prediction& p : predictions.all) {
    if (files.size() > 1) text += formats::csv_field(p.file) + ",";
    text += ids ? formats::csv_field(p.id.value_or("")) : std::to_string(p.index + 1);
    if (predictions.regression)
      text += format(",%.9g", p.value);
    else
      text.append(",")
          .append(formats::csv_field(p.guesses.front().name))
          .append(format(",%.6f", p.guesses.front().probability));
    if (labels) text.append(",").append(formats::csv_field(p.label.value_or("")));
    text += '\n';
  }
  return text;
}

}  // namespace

Prediction prediction_of(const std::string& file, const formats::Samples& samples, std::int64_t index) {
  Prediction p{.file = file, .index = index, .count = samples.count};
  const auto at = static_cast<std::size_t>(index);
  if (at < samples.ids.size()) p.id = samples.ids[at];
  if (at < samples.labels.size()) p.label = samples.labels[at];
  return p;
}

std::string place_of(const std::string& file, std::int64_t index, std::int64_t count) {
  return count == 1 ? file : format("%s[%lld]", file.c_str(), static_cast<long long>(index));
}

void check_predictions_file(const std::string& out, const std::string& model, const std::vector<std::string>& files) {
  if (out.empty()) return;
  namespace fs = std::filesystem;
  const formats::Destination destination = formats::destination_of("--out:", out);
  if (destination.kind == formats::Destination::Kind::stream) return;
  std::vector<std::string> read = files;
  read.push_back(model);
  std::error_code ignored;
  for (const std::string& file : read)
    if (fs::equivalent(out, file, ignored)) throw formats::Error("--out: " + out + " is a file that is read");
}

void print_predictions(const Predictions& predictions, const std::string& out, const Global& global) {
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
  } else if (predictions.tables && out.empty() && ::isatty(STDOUT_FILENO) == 0) {
    std::printf("%s", csv_of(predictions).c_str());
  } else if (out.empty()) {
    for (const Prediction& p : predictions.all) std::printf("%s", text_of(p, predictions.regression).c_str());
  }
}

}  // namespace bie::cli
