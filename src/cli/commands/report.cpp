// bie report: the page of a run's folder, of one process or of several.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "bie/models/model_file.h"
#include "bie/train/evaluation.h"
#include "bie/train/run_folder.h"
#include "cli/commands/commands.h"
#include "cli/support/data_options.h"
#include "cli/support/output.h"
#include "cli/support/result.h"
#include "cli/support/run_files.h"
#include "cli/support/run_page.h"
#include "cli/support/run_results.h"
#include "cli/support/session.h"
#include "cli/support/threads.h"
#include "data/value_errors.h"
#include "formats/folder_lock.h"

namespace bie::cli {
namespace {

std::vector<std::string> notes_of(const Json& config, const std::vector<train::Epoch>& history) {
  const auto epochs = config["recipe"].find("epochs");
  const bool early = epochs != config["recipe"].end() && epochs->is_number_integer() && !history.empty() &&
                     history.back().epoch < epochs->get<std::int64_t>();
  if (!early) return {};
  return {std::isnan(history.back().validation_score) ? stopped_early : stopped_by_validation};
}

void write_page_of(const std::string& path, std::string spec, const std::string& test_data, const Global& global) {
  const train::RunFolder run(path);
  const formats::FolderLock lock =
      data::with_value_errors([&] { return formats::FolderLock("run folder", run.path()); });
  const Json config = config_of(run.config());
  if (spec.empty()) spec = spec_of(config, run.config());
  Session session{models::load_classifier(run.model()), nullptr, {}};
  models::Classifier& model = *session.model;
  data::DataOptions options = data_options_of(config, run.config());
  if (!test_data.empty()) options.test_file = test_data;
  use_form(options, spec, model.config());
  CommandFiles files;
  files.reads(run.model(), "the model's file");
  reads_data(files, spec, options);
  files.writes("results", run.results());
  files.writes("page", run.report());
  const data::Dataset data = data::load_dataset(spec, options);
  session.task = train::task_of(data);
  check_fit(model.config(), run.model(), data);
  use_threads_for(model.config(), std::min(data.test_images.size(0), train::evaluation_batch));
  train::TrainResult& result = session.result;
  result.history = history_of(run.log());
  result.end = train::End::finished;
  result.test_outputs = train::logits(model, data.test_images);
  result.test_score = train::mean_score(*session.task, result.test_outputs, data.test_labels);
  for (const train::Epoch& epoch : result.history) result.seconds += epoch.seconds;
  if (!result.history.empty()) result.flipped = flipped_of(result.history.back(), model.products());
  const PageParts parts{.notes = notes_of(config, result.history),
                        .ranks = ranks_of(run.path() + "/ranks.json"),
                        .machine = facts_of(config["program"])};
  run.write_results(results_json(session, data, run.model()).dump());
  run.write_report(run_page(session, data, config, parts));
  if (!global.json) {
    std::printf("%s\n", run.report().c_str());
    return;
  }
  Json json = {{"run", run.path()}, {"report", run.report()}};
  json.update(score_json(*session.task, result.test_outputs, data));
  print_json("report", json);
}

}  // namespace

void add_report(CLI::App& app, const Global& global) {
  struct Arguments {
    std::string run, data, test_data;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("report", "Write the page of a finished run, of several processes too");
  takes_folder(command->add_option("run", arguments->run, "folder of bie train --run, or of python -m bie.train"))
      ->required();
  command->add_option("--data", arguments->data, "where the run's data set is, if not where config.json says")
      ->type_name("DATA");
  takes_file(command->add_option("--test-data", arguments->test_data,
                                 "where the file of bie train --test-data is, if not where config.json says"));
  command->footer(
      "Examples:\n"
      "  bie report runs/lenet4\n"
      "  bie report runs/lenet4 --data mnist:data/mnist");
  command->callback(
      [arguments, &global] { write_page_of(arguments->run, arguments->data, arguments->test_data, global); });
}

}  // namespace bie::cli
