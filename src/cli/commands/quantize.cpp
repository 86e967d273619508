// bie quantize: a trained float net in 8 or 4 bits without training.
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "bie/models/model_file.h"
#include "bie/train/evaluation.h"
#include "bie/train/post_training.h"
#include "cli/commands/commands.h"
#include "cli/commands/train_arguments.h"
#include "cli/llm/language.h"
#include "cli/support/help_text.h"
#include "cli/support/inspect_weights.h"
#include "cli/support/output.h"
#include "cli/support/result.h"
#include "cli/support/run_files.h"
#include "cli/support/session.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

struct Arguments {
  std::string model, calibration = "digits", out, rule = "mse";
  std::int64_t images = calibration_count;
  data::DataOptions table;
  std::vector<std::string> bits_of;
  std::optional<int> first, last;
  train::PostTraining options;
  const CLI::Option* percentile = nullptr;
  QuantizeArguments language;  ///< options that nets do not have
  std::vector<CLI::Option*> language_options;
};

void refuse_language_options(const Arguments& a) {
  for (const CLI::Option* option : a.language_options)
    if (option->count() > 0)
      throw CLI::ValidationError(option->get_name(), "is for language models, and " + a.model + " is none");
}

Json layers_json(const std::vector<train::LayerError>& layers) {
  Json json = Json::array();
  for (const train::LayerError& l : layers)
    json.push_back({{"name", l.name},
                    {"bits", l.bits},
                    {"scale_a", l.scale_a},
                    {"scale_w", l.scale_w},
                    {"saturated", l.saturated},
                    {"error", l.error}});
  return json;
}

void print_layers(const std::vector<train::LayerError>& layers) {
  std::printf("%-16s %4s  %10s  %10s  %9s  %7s\n", "layer", "bits", "scale_a", "scale_w", "saturated", "error");
  for (const train::LayerError& l : layers)
    std::printf("%-16s %4d  %10.3e  %10.3e  %7.3f %%  %5.2f %%\n", l.name.c_str(), l.bits, l.scale_a, l.scale_w,
                100 * l.saturated, 100 * l.error);
}

void quantize(Arguments& a, const Global& global) {
  if (is_language_model(a.model)) {
    a.language.model = a.model;
    quantize_language(a.language, global);
    return;
  }
  refuse_language_options(a);
  if (a.rule == "nearest" || a.rule == "search")
    throw CLI::ValidationError("--method", a.rule + " is for language models, and " + a.model + " is none");
  a.model = model_file(a.model);
  CommandFiles files;
  files.reads(a.model, "the model's file");
  reads_data(files, a.calibration, a.table);
  files.writes("--out", a.out);
  a.options.rule = train::step_rule_of(a.rule);
  if (a.percentile->count() > 0 && a.options.rule != train::StepRule::percentile)
    throw CLI::ValidationError("--percentile", "is for --method percentile, the method is " + a.rule);
  const auto model = models::load_classifier(a.model);
  models::ModelConfig named = model->config();
  named.bits_of.clear();
  named.quantise_first = false;
  set_layer_bits(named, a.bits_of, a.first, a.last);
  a.options.bits_of = named.bits_of;
  use_form(a.table, a.calibration, model->config());
  const data::Dataset data = data::load_dataset(a.calibration, a.table);
  tell_notes(data);
  TORCH_CHECK_VALUE(
      !data.test_is_training, "--calib ", a.calibration,
      ": all its rows are training rows of the model, none is left to count; --test-data FILE has others");
  check_fit(model->config(), a.model, data);
  const train::PostTrained result = train::quantize(*model, calibration_images(data, a.images), a.options);
  const auto task = train::task_of(data);
  const double before = train::mean_score(*model, *task, data.test_images, data.test_labels);
  const double after = train::mean_score(*result.model, *task, data.test_images, data.test_labels);
  if (!a.out.empty()) models::save_model(*result.model, a.out);
  const Json bytes_before = bytes_of(a.model), bytes = a.out.empty() ? Json() : bytes_of(a.out);
  const std::string score_name = model->config().is_regression() ? "r2" : "test_accuracy";
  if (global.json) {
    print_json("quantize", {{"model", a.model},
                            {"data", data.name},
                            {"bits", a.options.bits},
                            {"rule", train::name(a.options.rule)},
                            {"per_channel", a.options.per_channel},
                            {"fold", a.options.fold},
                            {score_name + "_before", before},
                            {score_name, after},
                            {"file_bytes_before", bytes_before},
                            {"file_bytes", bytes},
                            {"saved", a.out.empty() ? Json() : Json(a.out)},
                            {"layers", layers_json(result.layers)}});
    return;
  }
  print_layers(result.layers);
  const std::string value = score_text(*task, after);
  std::printf("test %s before, %s after\n", score_text(*task, before).c_str(),
              value.substr(value.find(' ') + 1).c_str());
  if (!bytes.is_null())
    std::printf("%s: %ju bytes instead of %ju\n", printable(a.out).c_str(), bytes.get<std::uintmax_t>(),
                bytes_before.get<std::uintmax_t>());
}

}  // namespace

void add_quantize(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* command =
      app.add_subcommand("quantize", "Turn a trained float net, or a language model, into fewer bits without training");
  command->add_option("model", a.model, "a float net: bie train --bits 32 -o FILE; or a language model")->required();
  takes_file(command->add_option("-o,--out", a.out, "where to save the quantised model (safetensors)"));
  command->add_option("--bits", a.options.bits, "8 or 4, of all layers but the first and the last")
      ->capture_default_str();
  command->add_option("--first", a.first, "bits of the first layer (default: 32)");
  command->add_option("--last", a.last, "bits of the last layer (default: 32)");
  command->add_option("--bits-of", a.bits_of, "NAME=BITS of one layer; bie inspect shows the names; may be repeated")
      ->type_size(1)
      ->allow_extra_args(false);
  command
      ->add_option("--calib,--data", a.calibration,
                   "the data set whose training images set the step sizes and whose test images are counted")
      ->type_name("DATA")
      ->capture_default_str();
  takes_file(command->add_option("--test-data", a.table.test_file,
                                 "rows to count, of a table (default: the test rows of --calib)"));
  command->add_option("--calib-images", a.images, "how many training images to look at")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  takes_one_of(
      command->add_option("--method", a.rule,
                          "how step sizes are chosen: mse or percentile; of language models nearest or search"),
      {"mse", "percentile", "nearest", "search"})
      ->capture_default_str();
  a.percentile = command
                     ->add_option("--percentile", a.options.percentile,
                                  "share of the values that is not clipped, in per cent (--method percentile)")
                     ->capture_default_str();
  command->add_flag("--per-channel", a.options.per_channel, "a weight scale for each output channel, not one a layer");
  command->add_flag("--fold", a.options.fold, "fold the BatchNorms into weights and biases");
  a.language_options = add_language_quantize_options(*command, a.language);
  command->footer(
      "An error is the root mean square of what changed in a layer's output over that of the output, on the float "
      "net's activations.\n"
      "Examples:\n"
      "  bie quantize digits32.safetensors --bits 8 -o digits8.safetensors\n"
      "  bie quantize lenet32.safetensors --bits 4 --per-channel \\\n"
      "      --calib mnist:data/mnist -o lenet4.safetensors\n"
      "  bie quantize lenet32.safetensors --bits-of conv2=4 --calib mnist:data/mnist\n"
      "  bie quantize model.gguf --type q4_0 -o small.gguf");
  command->callback([arguments, &global] { quantize(*arguments, global); });
}

}  // namespace bie::cli
