#include "cli/support/session.h"

#include <ATen/Context.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>

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

std::string epoch_line(const train::Epoch& e, std::int64_t epochs) {
  return format("epoch %lld/%lld: loss %.4f, test accuracy %.2f %%, rate %.2e, %.1f s", LongLong{e.epoch},
                LongLong{epochs}, e.loss, 100 * e.test_score, e.rate, e.seconds);
}

}  // namespace

models::ModelConfig fitted(models::ModelConfig config, const data::Dataset& data) {
  const auto image = data.train_images.sizes().slice(1);
  config.image = {image[0], image[1], image[2]};
  config.classes = data.classes;
  config.class_names = data.class_names;
  config.normalise = data.tabular;
  return config;
}

Session train_with_bar(const std::string& label, const models::ModelConfig& config, const data::Dataset& data,
                       const train::TrainOptions& options, const SessionHooks& hooks) {
  at::manual_seed(options.seed);
  Session session{models::make_model(fitted(config, data)), {}};
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
      log::info(epoch_line(e, options.epochs));
      accuracy = format("%.2f %%  ", 100 * e.test_score);
      hooks.epoch(e);
    };
  }
  listener.stop = was_interrupted;
  const InterruptWatch watch;
  session.result = train::fit(*session.model, data, options, listener);
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
                  "images:DIR (DIR/CLASS/*.png)")
      ->type_name("DATA")
      ->capture_default_str();
}

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
}

void check_fit(const models::Classifier& model, const std::string& path, const data::Dataset& data) {
  const models::ModelConfig& c = model.config();
  const auto image = data.test_images.sizes().slice(1);
  TORCH_CHECK_VALUE(image == at::IntArrayRef(c.image), data.name, ": the images are ", image, ", ", path, " wants ",
                    at::IntArrayRef(c.image));
  TORCH_CHECK_VALUE(data.classes <= c.classes, data.name, ": has ", data.classes, " classes, ", path, " has ",
                    c.classes);
  TORCH_CHECK_VALUE(c.class_names.empty() || data.class_names.empty() || c.class_names == data.class_names, data.name,
                    ": its classes are not those of ", path);
}

}  // namespace bie::cli
