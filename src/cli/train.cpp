// bie train: one model on one data set.
#include <ATen/Context.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "bie/nn/model_file.h"
#include "cli/commands.h"
#include "cli/log.h"
#include "cli/progress_bar.h"
#include "cli/session.h"

namespace bie::cli {

Session train_with_bar(const std::string& label, nn::ModelConfig config, const io::Dataset& data,
                       const train::TrainOptions& options) {
  const auto image = data.train_images.sizes().slice(1);
  config.image = {image[0], image[1], image[2]};
  config.classes = data.classes;
  at::manual_seed(options.seed);
  Session session{nn::make_model(config), {}};
  ProgressBar bar(label);
  session.result = train::fit(*session.model, data, options, [&](const train::Progress& p) {
    char note[64];
    std::snprintf(note, sizeof note, "epoch %lld/%lld  loss %.4f", static_cast<long long>(p.epoch),
                  static_cast<long long>(p.epochs), p.loss);
    bar.show(static_cast<double>(p.step) / static_cast<double>(p.steps), note);
  });
  return session;
}

void add_train(CLI::App& app) {
  struct Arguments {
    std::string data = "digits", out;
    nn::ModelConfig config;
    train::TrainOptions options;
  };
  auto arguments = std::make_shared<Arguments>();
  auto& a = *arguments;
  CLI::App* command = app.add_subcommand("train", "Train a classifier and save it packed");
  command->add_option("--data", a.data, "digits (built in) or mnist:DIR (a folder of IDX files, .gz or not)")
      ->capture_default_str();
  command->add_option("--arch", a.config.arch, "mlp or lenet")->capture_default_str();
  command->add_option("--bits", a.config.bits, "32 (float), 8, 4 or 1, weights and activations of the inner layers")
      ->capture_default_str();
  command->add_option("--hidden", a.config.hidden, "width of the inner layers")->capture_default_str();
  command->add_option("--depth", a.config.depth, "number of inner layers (mlp)")->capture_default_str();
  command->add_option("--epochs", a.options.epochs, "passes over the training images")->capture_default_str();
  command->add_option("--batch", a.options.batch, "images a step")->capture_default_str();
  command->add_option("--lr", a.options.lr, "rate of the float parameters, cosine to 0")->capture_default_str();
  command->add_option("--binary-lr", a.options.binary_lr, "rate of the 1-bit weights, cosine to 0")
      ->capture_default_str();
  command->add_flag("--freeze-binary", a.options.freeze_binary,
                    "leave the 1-bit weights as they start, for comparison");
  command->add_option("--seed", a.options.seed, "start of every generator")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("-o,--out", a.out, "where to save the model (safetensors)");
  command->footer("Example: bie train --data mnist:data/mnist --bits 4 --epochs 20 -o mnist4.safetensors");
  command->callback([arguments] {
    if (!arguments->out.empty()) {  // before the work, not after it
      const auto folder = std::filesystem::absolute(arguments->out).parent_path();
      TORCH_CHECK_VALUE(::access(folder.c_str(), W_OK) == 0, arguments->out, ": the folder ", folder.string(),
                        " cannot be written");
    }
    const io::Dataset data = io::load_dataset(arguments->data);
    log::info(c10::str(data.name, ": ", data.train_images.size(0), " training and ", data.test_images.size(0),
                       " test images"));
    const Session session = train_with_bar("train", arguments->config, data, arguments->options);
    std::printf("test accuracy %.2f %%", 100 * session.result.test_accuracy);
    if (!std::isnan(session.result.flipped))
      std::printf(", binary weights flipped %.1f %%", 100 * session.result.flipped);
    std::printf(", %.1f s\n", session.result.seconds);
    if (!arguments->out.empty()) {
      nn::save_model(*session.model, arguments->out);
      log::info("saved to " + arguments->out);
    }
  });
}

}  // namespace bie::cli
