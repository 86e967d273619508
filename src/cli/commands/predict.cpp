// bie predict: what a saved model says about files of images.
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <tuple>

#include "bie/data/samples.h"
#include "bie/models/model_file.h"
#include "bie/train/device.h"
#include "bie/train/evaluation.h"
#include "cli/commands/commands.h"
#include "cli/nets/net_files.h"
#include "cli/support/predictions.h"
#include "cli/support/result.h"
#include "cli/support/session.h"
#include "cli/support/text.h"
#include "cli/support/threads.h"

namespace bie::cli {
namespace {

struct Arguments {
  std::string model, device = "cpu";
  std::vector<std::string> files;
  int top = 3;
  std::optional<double> white;
};

std::string class_name(const models::ModelConfig& config, std::int64_t index) {
  return config.class_names.empty() ? std::to_string(index) : config.class_names[static_cast<std::size_t>(index)];
}

std::vector<Prediction> predictions(models::Classifier& model, const std::string& file, const Arguments& a) {
  const models::ModelConfig& c = model.config();
  const at::Tensor images = data::load_samples(file, {{c.image.begin(), c.image.end()}, !c.normalise, a.white});
  const std::int64_t top = std::min<std::int64_t>(a.top, c.classes), count = images.size(0);
  use_threads_for(c, std::min(count, train::evaluation_batch));
  const auto [shares, classes] = at::topk(at::softmax(train::logits(model, images), 1), top);
  std::vector<Prediction> found;
  for (std::int64_t i = 0; i < count; ++i) {
    Prediction prediction{file, i, count, {}};
    for (std::int64_t j = 0; j < top; ++j)
      prediction.guesses.push_back({class_name(c, classes[i][j].item<std::int64_t>()), shares[i][j].item<double>()});
    found.push_back(std::move(prediction));
  }
  return found;
}

void predict(const Arguments& a, const Global& global) {
  if (is_net(a.model)) return predict_with_net(a.model, a.files, a.top, a.white, global);
  const c10::Device device = train::device_of(a.device);
  const auto model = models::load_classifier(a.model);
  model->to(device);
  std::vector<Prediction> all;  // everything is read before anything is said
  for (const std::string& file : a.files)
    for (Prediction& prediction : predictions(*model, file, a)) all.push_back(std::move(prediction));
  print_predictions(a.model, all, global);
}

}  // namespace

void add_predict(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("predict", "The likeliest classes of images in files");
  command->add_option("model", arguments->model, "file written by bie train, bie quantize or bie export")->required();
  command->add_option("files", arguments->files, "PNG, IDX (.gz or not), NPY or CSV files")->required();
  command->add_option("--top", arguments->top, "classes to name")->check(CLI::Range(1, 10000))->capture_default_str();
  command
      ->add_option("--white", arguments->white,
                   "what values are divided by to lie in 0 to 1 (default: 255 for bytes, 1 for other numbers)")
      ->check(bad_white);
  add_device(*command, arguments->device);
  command->footer(
      "Examples:\n"
      "  bie predict mnist4.safetensors three.png seven.png\n"
      "  bie predict mnist4.safetensors t10k-images-idx3-ubyte.gz --top 1\n"
      "  bie predict iris8.safetensors flowers.csv --json | jq '.predictions[].guesses'");
  command->callback([arguments, &global] { predict(*arguments, global); });
}

}  // namespace bie::cli
