// bie report: the page of a run's folder, of one process or of several.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>

#include "bie/formats/mapped_file.h"
#include "bie/models/model_file.h"
#include "bie/train/evaluation.h"
#include "bie/train/run_folder.h"
#include "cli/commands/commands.h"
#include "cli/support/output.h"
#include "cli/support/result.h"
#include "cli/support/run_page.h"
#include "cli/support/session.h"
#include "cli/support/threads.h"
#include "data/value_errors.h"
#include "formats/folder_lock.h"
#include "formats/json_text.h"

namespace bie::cli {
namespace {

std::string text_of(const std::string& path) {
  const auto file = data::with_value_errors([&] { return std::make_unique<formats::MappedFile>("run file", path); });
  return {reinterpret_cast<const char*>(file->data()), static_cast<std::size_t>(file->size())};
}

/// The entry of that name, of a type that `is` tells; a ValueError that names file and entry.
template <class Is>
const nlohmann::json& entry(const nlohmann::json& object, const std::string& path, const char* name, const char* wanted,
                            const Is& is) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  TORCH_CHECK_VALUE(object.is_object() && found != object.end() && is(*found), "run file ", path, ": ", wanted,
                    " is wanted for its entry '", name, "'");
  return *found;
}

bool is_text(const nlohmann::json& value) { return value.is_string(); }
bool is_object(const nlohmann::json& value) { return value.is_object(); }
bool is_number(const nlohmann::json& value) { return value.is_number(); }
bool is_count(const nlohmann::json& value) {
  return formats::is_whole(value, 0, std::numeric_limits<std::int64_t>::max());
}

/// config.json with what a page asks of it.
Json config_of(const std::string& path) {
  const nlohmann::json config = formats::parse_json(text_of(path));
  for (const char* name : {"command", "started"}) entry(config, path, name, "a text", is_text);
  for (const char* name : {"data", "model", "recipe", "program"}) entry(config, path, name, "an object", is_object);
  return Json::parse(config.dump());
}

/// The data set that the run was trained on, as --data takes it.
std::string spec_of(const Json& config, const std::string& path) {
  const auto found = config["data"].find("spec");
  TORCH_CHECK_VALUE(found != config["data"].end() && found->is_string(), "run file ", path,
                    " does not say which data set it is of; --data does");
  return found->get<std::string>();
}

/// log.jsonl, a line an epoch.
std::vector<train::Epoch> history_of(const std::string& path) {
  std::string lines = text_of(path);
  while (!lines.empty() && lines.back() == '\n') lines.pop_back();
  std::replace(lines.begin(), lines.end(), '\n', ',');
  TORCH_CHECK_VALUE(!formats::parse_json("[" + lines + "]").is_discarded(), "run file ", path,
                    ": its lines are no JSON");
  return train::parse_history("[" + lines + "]");
}

/// ranks.json of a run of several processes; nothing where there is none.
std::vector<report::Rank> ranks_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const nlohmann::json file = formats::parse_json(text_of(path));
  const auto is_list = [](const nlohmann::json& value) { return value.is_array(); };
  std::vector<report::Rank> ranks;
  for (const nlohmann::json& rank : entry(file, path, "ranks", "a list", is_list))
    ranks.push_back({entry(rank, path, "rank", "a whole number", is_count).get<std::int64_t>(),
                     entry(rank, path, "host", "a text", is_text).get<std::string>(),
                     entry(rank, path, "device", "a text", is_text).get<std::string>(),
                     entry(rank, path, "images", "a whole number", is_count).get<std::int64_t>(),
                     entry(rank, path, "seconds", "a number", is_number).get<double>()});
  return ranks;
}

std::vector<std::string> notes_of(const Json& config, const std::vector<train::Epoch>& history) {
  const auto epochs = config["recipe"].find("epochs");
  const bool early = epochs != config["recipe"].end() && epochs->is_number_integer() && !history.empty() &&
                     history.back().epoch < epochs->get<std::int64_t>();
  if (!early) return {};
  return {stopped_early};
}

void write_page_of(const std::string& path, std::string spec, const Global& global) {
  const train::RunFolder run(path);
  const formats::FolderLock lock =
      data::with_value_errors([&] { return formats::FolderLock("run folder", run.path()); });
  const Json config = config_of(run.config());
  if (spec.empty()) spec = spec_of(config, run.config());
  Session session{models::load_classifier(run.model()), nullptr, {}};
  models::Classifier& model = *session.model;
  data::DataOptions options;
  use_form(options, spec, model.config());
  const data::Dataset data = data::load_dataset(spec, options);
  session.task = train::task_of(data);
  check_fit(model, run.model(), data);
  use_threads_for(model.config(), std::min(data.test_images.size(0), train::evaluation_batch));
  train::TrainResult& result = session.result;
  result.history = history_of(run.log());
  result.end = train::End::finished;
  result.test_score = train::mean_score(model, *session.task, data.test_images, data.test_labels);
  for (const train::Epoch& epoch : result.history) result.seconds += epoch.seconds;
  if (!result.history.empty()) result.flipped = flipped_of(result.history.back(), model.products());
  const PageParts parts{.notes = notes_of(config, result.history),
                        .ranks = ranks_of(run.path() + "/ranks.json"),
                        .machine = facts_of(config["program"])};
  run.write_report(run_page(session, data, config, parts));
  if (!global.json) {
    std::printf("%s\n", run.report().c_str());
    return;
  }
  Json json = {{"run", run.path()}, {"report", run.report()}};
  json.update(score_json(model, result.test_score, data));
  print_json("report", json);
}

}  // namespace

void add_report(CLI::App& app, const Global& global) {
  struct Arguments {
    std::string run, data;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("report", "Write the page of a finished run, of several processes too");
  takes_folder(command->add_option("run", arguments->run, "folder of bie train --run, or of python -m bie.train"))
      ->required();
  command->add_option("--data", arguments->data, "where the run's data set is, if not where config.json says")
      ->type_name("DATA");
  command->footer(
      "Examples:\n"
      "  bie report runs/lenet4\n"
      "  bie report runs/lenet4 --data mnist:data/mnist");
  command->callback([arguments, &global] { write_page_of(arguments->run, arguments->data, global); });
}

}  // namespace bie::cli
