// bie demo: the same net at 32, 8, 4 and 1 bit on the built-in digits, as one table.
#include <ATen/Parallel.h>
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
#include "cli/session.h"

namespace bie::cli {
namespace {

struct Line {
  int bits;
  double quantised, accuracy, flipped;
  std::uintmax_t bytes;
  double seconds_1, seconds_256;  ///< an image
};

Line measure(int bits, const io::Dataset& data, const train::TrainOptions& options) {
  nn::ModelConfig config;
  config.bits = bits;
  Session session = train_with_bar(std::to_string(bits) + " bit", config, data, options);
  nn::Classifier& model = *session.model;
  const auto file =
      std::filesystem::temp_directory_path() / ("bie-demo-" + std::to_string(::getpid()) + ".safetensors");
  nn::save_model(model, file.string());
  const std::uintmax_t bytes = std::filesystem::file_size(file);
  // What is reported is what a user gets back from the file.
  const auto loaded = nn::load_model(file.string());
  std::filesystem::remove(file);
  const double accuracy = train::accuracy(*loaded, data.test_images, data.test_labels);
  TORCH_CHECK(accuracy == session.result.test_accuracy, "the saved ", bits,
              "-bit model predicts differently: ", accuracy, " instead of ", session.result.test_accuracy);
  const double quantised = static_cast<double>(model.quantised_count()) / static_cast<double>(model.weight_count());
  return {bits,
          quantised,
          accuracy,
          session.result.flipped,
          bytes,
          train::latency(*loaded, data.test_images, 1, 300),
          train::latency(*loaded, data.test_images, 256, 60) / 256};
}

}  // namespace

void add_demo(CLI::App& app) {
  auto options = std::make_shared<train::TrainOptions>();
  CLI::App* command = app.add_subcommand("demo", "Train one net at 32, 8, 4 and 1 bit on digits and compare");
  command->add_option("--epochs", options->epochs, "passes over the training images")->capture_default_str();
  command->add_option("--seed", options->seed, "start of every generator")->capture_default_str();
  command->callback([options] {
    const io::Dataset data = io::load_dataset("digits");
    const nn::ModelConfig c;
    log::info(c10::str("digits: ", data.train_images.size(0), " training and ", data.test_images.size(0),
                       " test images; mlp 64-", c.hidden, "x", c.depth + 1, "-10, ", options->epochs, " epochs, ",
                       at::get_num_threads(), " threads"));
    std::vector<Line> lines;
    for (const int bits : {32, 8, 4, 1}) lines.push_back(measure(bits, data, *options));
    std::printf("bits  quantised  test acc  flipped  file bytes  us/image at 1 (vs fp32)  at 256 (vs fp32)\n");
    for (const Line& l : lines) {
      char flipped[16] = "-";
      if (!std::isnan(l.flipped)) std::snprintf(flipped, sizeof flipped, "%.1f %%", 100 * l.flipped);
      std::printf("%4d   %6.1f %%  %6.2f %%  %7s  %10ju  %12.1f (%5.2fx)  %13.2f (%5.2fx)\n", l.bits, 100 * l.quantised,
                  100 * l.accuracy, flipped, l.bytes, 1e6 * l.seconds_1, lines[0].seconds_1 / l.seconds_1,
                  1e6 * l.seconds_256, lines[0].seconds_256 / l.seconds_256);
    }
    std::printf(
        "quantised: share of all weights; flipped: 1-bit weights whose sign changed in training.\n"
        "Digits is a smoke test for 1 bit: a net whose binary weights stay frozen at random scores about as high.\n");
  });
}

}  // namespace bie::cli
