#include "cli/support/session.h"

#include <ATen/Context.h>
#include <ATen/ops/linspace.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "bie/train/class_scores.h"
#include "bie/train/evaluation.h"
#include "bie/train/recipe.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/progress_bar.h"
#include "cli/support/text.h"
#include "cli/support/threads.h"

namespace bie::cli {
namespace {

using LongLong = long long;  // what printf has a letter for

std::string progress_note(const train::Progress& p, const std::string& accuracy) {
  const double left = p.seconds / static_cast<double>(p.done) * static_cast<double>(p.steps - p.step);
  return format("epoch %lld/%lld  loss %.4f  %s%s left", LongLong{p.epoch}, LongLong{p.epochs}, p.loss,
                accuracy.c_str(), duration(left).c_str());
}

/// "98.33 %", "R2 0.8312".
std::string score_value(const train::Task& task, double score) {
  return task.metric() == "accuracy" ? format("%.2f %%", 100 * score) : format("%s %.4f", task.metric().c_str(), score);
}

std::string epoch_line(const train::Epoch& e, std::int64_t epochs, const train::Task& task) {
  const std::string validation =
      std::isnan(e.validation_score) ? "" : "validation " + score_text(task, e.validation_score) + ", ";
  return format("epoch %lld/%lld: loss %.4f, %stest %s, rate %.2e, %.1f s", LongLong{e.epoch}, LongLong{epochs}, e.loss,
                validation.c_str(), score_text(task, e.test_score).c_str(), e.rate, e.seconds);
}

/// Text behind an accuracy, if always giving the same answer would come close to it.
std::string hidden_text(const train::ClassScores& scores, const data::Dataset& data) {
  if (scores.majority * static_cast<double>(data.classes) < 1.5) return "";
  const auto at = static_cast<std::size_t>(scores.commonest);
  const std::string name = at < data.class_names.size() ? data.class_names[at] : std::to_string(at);
  return format(", balanced accuracy %.2f %%, AUC %.4f (always \"%s\" is right for %.2f %%)",
                100 * scores.balanced_accuracy, scores.auc, printable(name).c_str(), 100 * scores.majority);
}

bool is_regression(const data::Dataset& data) { return data.table && data.table->regression; }

}  // namespace

models::ModelConfig fitted(models::ModelConfig config, const data::Dataset& data) {
  const auto image = data.train_images.sizes().slice(1);
  config.image = {image[0], image[1], image[2]};
  config.classes = data.classes;
  config.class_names = data.class_names;
  config.normalise = data.table && data.table->version < 2;  // else rows are scaled as they are read
  config.table = data.table;
  config.fit = data.fit;
  return config;
}

std::string score_text(const train::Task& task, double score) {
  return (task.metric() == "accuracy" ? "accuracy " : "") + score_value(task, score);
}

std::string scores_text(const train::Task& task, const at::Tensor& outputs, const data::Dataset& data) {
  std::string text = score_text(task, train::mean_score(task, outputs, data.test_labels));
  if (!is_regression(data)) return text + hidden_text(train::class_scores(outputs, data.test_labels), data);
  const auto [mae, rmse] = train::regression_errors(data.table, outputs, data.test_labels);
  text += format(", mean error %.4g, root mean square %.4g", mae, rmse);
  return data.table->label.empty() ? text : text + " (" + printable(data.table->label) + ")";
}

Json score_json(const train::Task& task, const at::Tensor& outputs, const data::Dataset& data) {
  const double score = train::mean_score(task, outputs, data.test_labels);
  if (!is_regression(data)) {
    const train::ClassScores scores = train::class_scores(outputs, data.test_labels);
    return {{"test_accuracy", score},
            {"balanced_accuracy", scores.balanced_accuracy},
            {"auc", std::isnan(scores.auc) ? Json() : Json(scores.auc)},
            {"majority", scores.majority}};
  }
  const auto [mae, rmse] = train::regression_errors(data.table, outputs, data.test_labels);
  return {{"label", data.table->label}, {"r2", score}, {"mae", mae}, {"rmse", rmse}};
}

Session train_with_bar(const std::string& label, const models::ModelConfig& config, const data::Dataset& data,
                       const train::TrainOptions& options, const SessionHooks& hooks) {
  at::manual_seed(options.seed);
  Session session{models::make_model(fitted(config, data)),
                  options.balanced_classes ? train::balanced_classification(data) : train::task_of(data),
                  {}};
  use_threads_for(session.model->config(), options.batch.value_or(train::default_batch(data.train_images.size(0))));
  if (hooks.configure) hooks.configure(*session.model);
  ProgressBar bar(label);
  std::string accuracy;
  std::vector<train::Epoch> past;
  train::Listener listener;
  listener.progress = [&](const train::Progress& p) {
    bar.show(static_cast<double>(p.step) / static_cast<double>(p.steps), progress_note(p, accuracy));
  };
  listener.note = [&](const std::string& sentence) {
    bar.clear();
    log::info(sentence);
  };
  listener.past = [&](const std::vector<train::Epoch>& epochs) { past = epochs; };
  listener.started = [&] {
    if (hooks.started) hooks.started(*session.model, past);
  };
  if (hooks.epoch) {
    listener.epoch = [&](const train::Epoch& e) {
      bar.clear();
      log::info(epoch_line(e, options.epochs, *session.task));
      accuracy = score_value(*session.task, e.test_score) + "  ";
      hooks.epoch(e);
    };
  }
  listener.stop = was_interrupted;
  const InterruptWatch watch;
  session.result = train::fit(*session.model, data, options, listener, *session.task);
  return session;
}

namespace {

std::string empty_name(const std::string& name) { return name.empty() ? "the name is empty" : ""; }

/// CLI11 takes a number beyond all bounds for the largest one.
std::string bad_seed(const std::string& text) {
  std::int64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, seed);
  return error == std::errc() && rest == end && seed >= 0 ? "" : text + " is no whole number from 0 to 2^63 - 1";
}

}  // namespace

CLI::Option* takes_file(CLI::Option* option) { return option->type_name("FILE")->check(empty_name); }
CLI::Option* takes_folder(CLI::Option* option) { return option->type_name("DIR")->check(empty_name); }

CLI::Option* add_seed(CLI::App& command, std::uint64_t& seed, const char* what) {
  return command.add_option("--seed", seed, what)->type_name("INT")->check(bad_seed)->capture_default_str();
}

CLI::Option* add_data(CLI::App& command, std::string& data) {
  return command
      .add_option("--data", data,
                  "digits (built in), mnist:DIR (IDX files, .gz or not), cifar10:DIR (binary files), csv:FILE or "
                  "images:DIR (DIR/CLASS/*.jpg, *.png, *.webp)")
      ->type_name("DATA")
      ->capture_default_str();
}

void add_picture_options(CLI::App& command, data::DataOptions& options) {
  const std::string group = "Pictures (--data images:DIR)";
  data::PictureOptions& pictures = options.pictures;
  command
      .add_option_function<std::string>(
          "--size",
          [&pictures](const std::string& text) {
            pictures.size.emplace();
            std::sscanf(text.c_str(), "%" SCNd64 "x%" SCNd64, &(*pictures.size)[0], &(*pictures.size)[1]);
          },
          "height and width that all are brought to (default: their own; 64x64 where they differ or are large)")
      ->type_name("HxW")
      ->check([](const std::string& text) {
        int height = 0, width = 0, end = 0;
        const bool good = std::sscanf(text.c_str(), "%4dx%4d%n", &height, &width, &end) == 2 &&
                          static_cast<std::size_t>(end) == text.size() && height > 0 && width > 0 && height <= 4096 &&
                          width <= 4096;
        return good ? std::string() : text + " is no size like 64x48, at most 4096x4096";
      })
      ->group(group);
  command
      .add_option_function<std::string>(
          "--fit", [&pictures](const std::string& text) { pictures.fit = formats::fit_of(text); },
          "pictures of another shape: crop (their middle), pad (with black borders) or stretch")
      ->type_name("crop|pad|stretch")
      ->check(CLI::IsMember({"crop", "pad", "stretch"}))
      ->default_str("crop")
      ->group(group);
  command.add_flag("--nested", pictures.nested, "read folders below those of the classes too")->group(group);
  command.add_flag("--skip-broken", pictures.skip_broken, "leave out pictures that cannot be read, and list them")
      ->group(group);
}

void use_form(data::DataOptions& options, const std::string& spec, const models::ModelConfig& c) {
  if (c.fit && spec.starts_with("images:")) {
    options.pictures.size = {c.image[1], c.image[2]};
    options.pictures.fit = c.fit;
  }
  if (!c.takes_numbers() || c.image[0] != 1 || c.image[1] != 1) return;
  options.form = c.table ? *c.table : formats::plain_form(c.image[2]);
  options.classes.clear();
  for (std::int64_t i = 0; i < c.classes && !c.is_regression(); ++i) options.classes.push_back(c.class_name(i));
}

at::Tensor calibration_images(const data::Dataset& data, std::int64_t count) {
  const std::int64_t all = data.train_images.size(0), wanted = std::min(count, all);
  const at::Tensor rows = at::linspace(0, static_cast<double>(all - 1), wanted, at::kDouble).to(at::kLong);
  return data::pixels(data.train_images.index_select(0, rows));
}

void tell_notes(const data::Dataset& data) {
  for (const std::string& note : data.notes) log::info(note);
}

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
}

void check_fit(const models::ModelConfig& c, const std::string& path, const data::Dataset& data) {
  const auto image = data.test_images.sizes().slice(1);
  TORCH_CHECK_VALUE(!c.table || data.table, data.name, ": expected csv:FILE, as ", path,
                    " is a model of tables, got no table");
  TORCH_CHECK_VALUE(image == at::IntArrayRef(c.image), data.name, ": the images are ", image, ", ", path, " wants ",
                    at::IntArrayRef(c.image));
  TORCH_CHECK_VALUE(data.classes <= c.classes, data.name, ": has ", data.classes, " classes, ", path, " has ",
                    c.classes);
  TORCH_CHECK_VALUE(c.is_regression() == is_regression(data), data.name, ": its labels are not what ", path,
                    " predicts");
  TORCH_CHECK_VALUE(c.class_names.empty() || data.class_names.empty() || c.class_names == data.class_names, data.name,
                    ": its classes are not those of ", path);
}

}  // namespace bie::cli
