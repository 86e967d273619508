// bie train: one model on one data set.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>

#include "bie/models/layer_table.h"
#include "bie/train/run_folder.h"
#include "bie/train/warm_start.h"
#include "cli/commands/commands.h"
#include "cli/commands/train_arguments.h"
#include "cli/support/build_info.h"
#include "cli/support/data_options.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/output.h"
#include "cli/support/result.h"
#include "cli/support/run_page.h"
#include "cli/support/run_results.h"
#include "cli/support/session.h"
#include "cli/support/text.h"
#include "report/interval.h"
#include "report/number_text.h"

namespace bie::cli {
namespace {

/// "bie train ...", as it was called.
std::string command_line(const Global& global, bool resume) {
  std::vector<std::string> words{"bie"};
  words.insert(words.end(), global.words.begin(), global.words.end());
  if (resume && std::find(words.begin(), words.end(), "--resume") == words.end()) words.emplace_back("--resume");
  return shell_line(words);
}

/// The same words, as --resume reads them; null where JSON cannot hold one.
Json words_of(const Global& global) {
  Json words = Json::array();
  for (const std::string& word : global.words) {
    if (exact_text(word).is_null()) return {};
    if (word != "--resume") words.push_back(word);
  }
  return words;
}

/// config.json of a run folder.
Json run_config(const TrainArguments& a, const models::Classifier& model, const data::Dataset& data,
                const Global& global) {
  const train::TrainOptions& o = a.options;
  const train::Recipe recipe = train::recipe_of(model.config(), o);
  const std::int64_t training = data.train_images.size(0), testing = data.test_images.size(0);
  const std::int64_t validating = data.validation_images.defined() ? data.validation_images.size(0) : 0;
  return {{"schema", 1},
          {"command", command_line(global, false)},
          {"words", words_of(global)},
          {"started", utc_now()},
          {"data",
           {{"name", data.name},
            {"spec", exact_text(a.data)},
            {"train_samples", training},
            {"test_samples", testing},
            {"validation_samples", validating},
            {"train_images", training},  // the older names, which schema 1 keeps
            {"test_images", testing},
            {"validation_images", validating},
            {"classes", data.classes},
            {"options", data_options_json(a.table)}}},
          {"model", Json::parse(models::config_json(model.config()))},
          {"recipe",
           {{"epochs", o.epochs},
            {"batch", o.batch.value_or(train::default_batch(data.train_images.size(0)))},
            {"patience", o.patience},
            {"keep_best", o.keep_best},
            {"augment", train::name(o.augment)},
            {"optimizer", train::name(o.optimizer)},
            {"lr", recipe.lr},
            {"weight_decay", recipe.weight_decay},
            {"integer_lr", recipe.integer_lr},
            {"integer_memory", recipe.integer_memory},
            {"schedule", optim::name(recipe.schedule.kind)},
            {"warmup", recipe.schedule.warmup},
            {"renew_scale_every", o.renew_scale_every},
            {"wide_gradients", o.wide_gradients},
            {"class_weights", o.balanced_classes ? "balanced" : "none"},
            {"freeze_binary", o.freeze_binary},
            {"moments", o.moments == optim::MomentType::bfloat16 ? "bfloat16" : "float32"},
            {"precision", o.bfloat16 ? "bfloat16" : "float32"},
            {"step_floor", a.guard.floor},
            {"gradients", a.gradients == ops::GradMode::exact ? "exact" : "reference"},
            {"compat", a.words.compat},
            {"from", a.from.empty() ? Json() : Json(a.from)},
            {"checkpoint_every", o.checkpoint_every},
            {"seed", o.seed}}},
          {"device", o.device.str()},
          {"program", build_info()}};
}

/// Says what Ctrl-C left of a run.
std::string interrupted_sentence(const TrainArguments& a, const train::TrainResult& result, const Global& global) {
  const std::string when = format("interrupted after step %lld", static_cast<long long>(result.steps));
  if (a.options.checkpoints.empty()) return when + "; nothing was kept, --run DIR or --checkpoints DIR would keep it";
  return when + ", kept in " + a.options.checkpoints + "; go on with: " + command_line(global, true);
}

void write_page(const train::RunFolder& run, const Session& session, const data::Dataset& data, const Json& config,
                const std::vector<std::string>& notes) {
  run.write_report(run_page(session, data, config, {.notes = notes}));
  log::info("the run's page is " + run.report());
}

/// Ends the command. The page shows what there is; without it the run still goes on.
[[noreturn]] void end_interrupted(const std::string& sentence, const std::optional<train::RunFolder>& run,
                                  const Session& session, const data::Dataset& data, const Json& config) {
  try {
    if (run) write_page(*run, session, data, config, {"The run was " + sentence});
  } catch (const c10::ValueError& error) {
    log::warn(error.what_without_backtrace());
  }
  throw Interrupted(sentence);
}

const char* name_of(train::End end) {
  return end == train::End::patience ? "patience" : end == train::End::interrupted ? "interrupted" : "finished";
}

Json result_json(const TrainArguments& a, const Session& session, const data::Dataset& data,
                 const std::vector<std::string>& saved) {
  const train::TrainResult& r = session.result;
  Json epochs = Json::array();
  for (const train::Epoch& epoch : r.history) epochs.push_back(Json::parse(train::epoch_json(epoch)));
  Json json = {{"data", data.name}};
  json.update(score_json(*session.task, r.test_outputs, data));
  json.update(Json{{"flipped", r.flipped},
                   {"seconds", r.seconds},
                   {"end", name_of(r.end)},
                   {"steps", r.steps},
                   {"weights", session.model->weight_count()},
                   {"quantised_weights", session.model->quantised_count()},
                   {"optimizer_bytes", r.optimizer_bytes},
                   {"saved", saved},
                   {"run", a.run.empty() ? Json() : Json(a.run)},
                   {"epochs", epochs}});
  return json;
}

void print_text(const Session& session, const data::Dataset& data) {
  const train::TrainResult& r = session.result;
  std::printf("test %s", scores_text(*session.task, r.test_outputs, data).c_str());
  if (!std::isnan(r.flipped)) std::printf(", binary weights flipped %.1f %%", 100 * r.flipped);
  std::printf(", %.1f s\n", r.seconds);
}

/// The data, with what is to be said of them, and the configuration that they complete.
data::Dataset load_and_fit(TrainArguments& a) {
  data::Dataset data = data::load_dataset(a.data, a.table);
  tell_notes(data);
  const char* const samples = data.table ? "rows" : "images";
  const std::string validation =
      data.validation_images.defined() ? c10::str(", ", data.validation_images.size(0), " validation") : std::string();
  log::info(c10::str(data.name, ": ", data.train_images.size(0), " training", validation, " and ",
                     data.test_images.size(0), " test ", samples));
  use_data(a, data);
  a.config = fitted(a.config, data);
  set_layer_bits(a.config, a.words.bits_of, a.words.first, a.words.last);
  return data;
}

/// --dry-run: describes the run without starting it.
void print_plan(const TrainArguments& a, const data::Dataset& data, const Global& global) {
  const std::int64_t images = data.train_images.size(0),
                     batch = std::min(a.options.batch.value_or(train::default_batch(images)), images);
  const std::shared_ptr<models::Classifier> model = models::make_model(a.config);
  check_use(a, *model);
  if (global.json) {
    print_json("train", {{"dry_run", true},
                         {"config", run_config(a, *model, data, global)},
                         {"weights", model->weight_count()},
                         {"quantised_weights", model->quantised_count()},
                         {"steps", images / batch * a.options.epochs}});
    return;
  }
  const auto& [channels, height, width] = a.config.image;
  std::printf("inputs: %lld x %lld x %lld, outputs: %lld\n%s\n", static_cast<long long>(channels),
              static_cast<long long>(height), static_cast<long long>(width), static_cast<long long>(a.config.classes),
              models::layer_table(*model).c_str());
  std::printf("%lld steps of %lld in %lld epochs\n", static_cast<long long>(images / batch * a.options.epochs),
              static_cast<long long>(batch), static_cast<long long>(a.options.epochs));
}

/// Sets a new model up as the options say.
void configure(const TrainArguments& a, const data::Dataset& data, models::Classifier& model) {
  check_use(a, model);
  layers::set_grad_mode(model, a.gradients);
  layers::set_compat(model, a.compat);
  layers::set_step_size_guard(model, a.guard);
  if (!a.source) return;
  const std::vector<std::string> fresh =
      train::start_from(model, *a.source, calibration_images(data, calibration_count));
  log::info("starts from " + a.from + (fresh.empty() ? "" : ", but for the last layer: it has other classes"));
}

/// Sentences about how the run ended, for log and page.
std::vector<std::string> notes_on_end(const TrainArguments& a, const train::TrainResult& result) {
  std::vector<std::string> notes;
  const std::int64_t best = train::best_epoch(result.history);
  const std::int64_t best_number = best < 0 ? 0 : result.history[static_cast<std::size_t>(best)].epoch;
  if (result.end == train::End::patience) {
    const bool by_validation = best >= 0 && !std::isnan(result.history.front().validation_score);
    notes.emplace_back(by_validation ? stopped_by_validation : stopped_early);
    log::info(c10::str("stopped early: the best of ", result.history.size(), " epochs was epoch ", best_number));
  }
  if (a.options.keep_best && best >= 0) {
    notes.push_back(
        c10::str("The weights are those of epoch ", best_number, ", which the validation samples judge best."));
    log::info(c10::str("kept the weights of epoch ", best_number, ", the best by the validation samples"));
  }
  return notes;
}

/// The model, where the options want it; the paths.
std::vector<std::string> save(const TrainArguments& a, const std::optional<train::RunFolder>& run,
                              const Session& session) {
  std::vector<std::string> saved;
  if (run) saved.push_back(run->model());
  if (!a.out.empty()) saved.push_back(a.out);
  for (const std::string& path : saved) {
    models::save_model(*session.model, path, a.form);
    log::info("saved to " + path);
  }
  return saved;
}

void train_and_save(TrainArguments& a, const Global& global) {
  std::optional<train::RunFolder> run;
  if (!a.run.empty() && !a.dry_run) run.emplace(a.run);
  if (run) a.options.checkpoints = run->checkpoints();
  const data::Dataset data = load_and_fit(a);
  if (a.dry_run) return print_plan(a, data, global);

  Json config;
  SessionHooks hooks;
  hooks.configure = [&](models::Classifier& model) { configure(a, data, model); };
  hooks.started = [&](models::Classifier& model, const std::vector<train::Epoch>& past) {
    if (a.layers && !global.json) std::printf("%s\n", models::layer_table(model).c_str());
    config = run_config(a, model, data, global);
    if (run) run->start(config.dump(2, ' ', false, Json::error_handler_t::replace), past);
  };
  hooks.epoch = [&](const train::Epoch& epoch) {
    if (run) run->add(epoch);
  };
  const Session session = train_with_bar("train", a.config, data, a.options, hooks);
  const train::TrainResult& result = session.result;
  if (result.end == train::End::interrupted)
    end_interrupted(interrupted_sentence(a, result, global), run, session, data, config);
  const std::vector<std::string> notes = notes_on_end(a, result);
  log::info(c10::str("the optimizer held ", result.optimizer_bytes, " bytes for ", session.model->weight_count(),
                     " weights"));
  const std::vector<std::string> saved = save(a, run, session);
  if (run) {
    run->write_results(results_json(session, data, run->model()).dump(-1, ' ', false, Json::error_handler_t::replace));
    write_page(*run, session, data, config, notes);
  }
  if (!a.logits.empty()) save_logits(session.result.test_outputs, a.logits);
  if (global.json)
    print_json("train", result_json(a, session, data, saved));
  else
    print_text(session, data);
}

/// The scores of the folds of a cross-validation.
struct FoldScores {
  std::string metric;
  std::vector<double> scores;
  std::vector<std::int64_t> rows;
  Json json = Json::array();

  double mean() const {  // of an accuracy that of all rows, each of which counts once
    double sum = 0, all = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double weight = metric == "accuracy" ? static_cast<double>(rows[i]) : 1;
      sum += weight * scores[i];
      all += weight;
    }
    return sum / all;
  }
  report::Interval interval() const {
    if (metric != "accuracy") return report::interval_of_mean(scores);
    return report::wilson(mean(), std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  }
};

void cross_validate(const TrainArguments& a, const Global& global) {
  FoldScores found;
  double seconds = 0;
  std::string name;
  for (int fold = 0; fold < a.folds; ++fold) {
    TrainArguments own = a;
    own.table.folds = a.folds;
    own.table.fold = fold;
    const data::Dataset data = load_and_fit(own);
    SessionHooks hooks;
    hooks.configure = [&](models::Classifier& model) { configure(own, data, model); };
    hooks.epoch = [](const train::Epoch&) {};
    const Session session = train_with_bar(format("fold %d", fold + 1), own.config, data, own.options, hooks);
    const train::TrainResult& result = session.result;
    if (result.end == train::End::interrupted) throw Interrupted("interrupted; cross-validation keeps nothing");
    if (!global.json)
      std::printf("fold %d of %d: test %s\n", fold + 1, a.folds,
                  scores_text(*session.task, result.test_outputs, data).c_str());
    Json json = {{"test_samples", data.test_images.size(0)}};
    json.update(score_json(*session.task, result.test_outputs, data));
    found.json.push_back(std::move(json));
    found.metric = session.task->metric();
    found.scores.push_back(result.test_score);
    found.rows.push_back(data.test_images.size(0));
    seconds += result.seconds;
    name = data.name;
  }
  const double mean = found.mean();
  const auto [low, high] = found.interval();
  if (global.json) {
    print_json("train", {{"data", name},
                         {"metric", found.metric},
                         {"mean", mean},
                         {"low", low},
                         {"high", high},
                         {"folds", found.json},
                         {"seconds", seconds}});
    return;
  }
  const report::Metric metric{found.metric, found.metric == "accuracy" ? report::Unit::percent : report::Unit::number};
  std::printf("%s %s (%s to %s), %.1f s\n", found.metric.c_str(), report::with_unit(mean, metric.unit).c_str(),
              report::with_unit(low, metric.unit).c_str(), report::with_unit(high, metric.unit).c_str(), seconds);
}

}  // namespace

void add_train(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a classifier and save it packed");
  add_options(*command, *arguments);
  command->footer(
      "Examples:\n"
      "  bie train --bits 4 -o digits4.safetensors\n"
      "  bie train --data mnist:data/mnist --arch lenet --bits 4 --run runs/lenet4\n"
      "  bie train --data images:photos --arch vgg-small --width 32 --bits 8 \\\n"
      "      --first 8 --optimizer sgd --augment crop-flip --run runs/photos\n"
      "  bie train --data csv:iris.csv --bits 8 --best --run runs/iris\n"
      "  bie train --data mnist:data/mnist --from lenet32.safetensors --bits 4");
  command->callback([arguments, &global] {
    resolve(*arguments);
    if (arguments->folds > 0 && !arguments->dry_run) return cross_validate(*arguments, global);
    arguments->table.folds = arguments->folds;  // a plan is that of the first fold
    train_and_save(*arguments, global);
  });
}

}  // namespace bie::cli
