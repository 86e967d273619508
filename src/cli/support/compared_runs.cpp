#include "cli/support/compared_runs.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "bie/train/run_folder.h"
#include "cli/support/run_files.h"
#include "cli/support/text.h"
#include "report/interval.h"

namespace bie::cli {
namespace {

using Options = std::map<std::string, std::string>;

/// The options of a command and their values; those that say where files go are left out.
Options options_of(const Json& config) {
  std::map<std::string, std::vector<std::string>> values;  // an option may be repeated
  const auto words = config.find("words");
  if (words == config.end() || !words->is_array()) return {};
  std::string open;  // the option whose value may come
  for (const auto& entry : *words) {
    const std::string word = entry.is_string() ? entry.get<std::string>() : entry.dump();
    if (word.starts_with("-")) {
      const std::size_t equals = word.find('=');
      open = word.substr(0, equals);
      values[open].push_back(equals == std::string::npos ? "yes" : word.substr(equals + 1));
    } else if (!open.empty()) {
      values[open].back() = word;
      open.clear();
    }
  }
  Options options;
  for (auto& [option, all] : values)
    for (const std::string& value : all) options[option] += (options[option].empty() ? "" : ", ") + value;
  for (const char* file : {"--run", "-o", "--out", "--logits", "--json", "-q", "--quiet", "--threads"})
    options.erase(file);
  return options;
}

std::vector<report::Difference> differences_of(const std::vector<Options>& runs) {
  Options all;
  for (const Options& options : runs) all.insert(options.begin(), options.end());
  std::vector<report::Difference> differences;
  for (const auto& [option, ignored] : all) {
    report::Difference difference{option, {}};
    for (const Options& options : runs) {
      const auto found = options.find(option);
      difference.values.push_back(found == options.end() ? std::string() : found->second);
    }
    const auto& values = difference.values;
    if (std::any_of(values.begin(), values.end(), [&](const std::string& value) { return value != values.front(); }))
      differences.push_back(std::move(difference));
  }
  return differences;
}

report::Run run_of(const train::RunFolder& folder, const RunResults& results) {
  report::Run run;
  run.name = folder.path();
  run.test_score = results.test_score;
  run.test_loss = results.test_loss;
  run.test_samples = results.test_samples;
  run.model_bytes = static_cast<std::uint64_t>(results.model_bytes);
  run.weights = static_cast<std::uint64_t>(results.weights);
  run.seconds = results.seconds;
  for (const train::Epoch& e : history_of(folder.log())) {
    report::Epoch epoch;
    epoch.number = e.epoch;
    epoch.loss = e.loss;
    epoch.test_score = e.test_score;
    run.epochs.push_back(epoch);
  }
  run.confusion = results.confusion;
  return run;
}

/// Without the folder that all names begin with.
void shorten(std::vector<report::Run>& runs) {
  const auto folder = [](const std::string& name) { return std::filesystem::path(name).parent_path(); };
  const std::filesystem::path first = folder(runs.front().name);
  const auto is_there = [&](const report::Run& run) { return folder(run.name) == first; };
  if (runs.size() < 2 || first.empty() || !std::all_of(runs.begin(), runs.end(), is_there)) return;
  for (report::Run& run : runs) run.name = std::filesystem::path(run.name).filename().string();
}

}  // namespace

report::RunsReport compared(const std::vector<std::string>& folders) {
  report::RunsReport runs;
  std::vector<Options> options;
  std::string data, metric;
  for (const std::string& path : folders) {
    const train::RunFolder folder(path);
    const Json config = config_of(folder.config());
    std::error_code ignored;
    TORCH_CHECK_VALUE(std::filesystem::exists(folder.results(), ignored), "run folder ", path,
                      " holds no finished run; bie train --run DIR --resume ends it, bie report writes the results of "
                      "an earlier version's");
    const RunResults results = results_of(folder.results());
    TORCH_CHECK_VALUE(metric.empty() || metric == results.metric, "the score of ", folders.front(), " is ", metric,
                      " and that of ", path, " is ", results.metric, ": they cannot be compared");
    metric = results.metric;
    const std::string own = config["data"].value("name", std::string());
    if (!data.empty() && own != data)
      runs.notes.push_back("The runs are not of the same data: " + folders.front() + " is of " + data + ", " + path +
                           " of " + own + ".");
    if (data.empty()) data = own;
    runs.runs.push_back(run_of(folder, results));
    options.push_back(options_of(config));
  }
  if (metric != "accuracy") runs.metric = {metric, report::Unit::number};
  runs.differences = differences_of(options);
  runs.title = std::to_string(folders.size()) + (folders.size() == 1 ? " run" : " runs") + " on " + data;
  runs.when = utc_now();
  shorten(runs.runs);
  return runs;
}

void print_runs(const report::RunsReport& runs) {
  std::size_t width = 3;
  for (const report::Run& run : runs.runs) width = std::max(width, printable(run.name).size());
  const auto left = static_cast<int>(width);
  std::printf("%-*s  %24s  %9s  %11s  %9s  %6s\n", left, "run", ("test " + runs.metric.name).c_str(), "test loss",
              "model bytes", "time", "epochs");
  for (const report::Run& run : runs.runs) {
    // The space that does not break is two bytes wide.
    const std::string score = report::score_with_interval(run.test_score, run.test_samples, runs.metric);
    const auto bytes = static_cast<int>(24 + std::count(score.begin(), score.end(), '\xc2'));
    std::printf("%-*s  %*s  %9.4f  %11s  %10s  %6zu\n", left, printable(run.name).c_str(), bytes, score.c_str(),
                run.test_loss, report::grouped(run.model_bytes).c_str(),
                report::with_unit(run.seconds, report::Unit::seconds).c_str(), run.epochs.size());
  }
  for (const report::Difference& difference : runs.differences) {
    std::printf("%s:", printable(difference.option).c_str());
    for (const std::string& value : difference.values)
      std::printf("  %s", value.empty() ? "(default)" : printable(value).c_str());
    std::printf("\n");
  }
}

Json runs_json(const report::RunsReport& runs) {
  Json list = Json::array();
  const bool accuracy = runs.metric.unit == report::Unit::percent;
  for (const report::Run& run : runs.runs) {
    Json json = {{"run", run.name}, {accuracy ? "test_accuracy" : "test_r2", run.test_score}};
    if (accuracy) {
      const auto [low, high] = report::wilson(run.test_score, run.test_samples);
      json["low"] = low;
      json["high"] = high;
    }
    json.update(Json{{"test_loss", run.test_loss},
                     {"test_samples", run.test_samples},
                     {"model_bytes", run.model_bytes},
                     {"weights", run.weights},
                     {"seconds", run.seconds},
                     {"epochs", run.epochs.size()}});
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace bie::cli
