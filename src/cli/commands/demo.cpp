// bie demo: the same net at 32, 8, 4 and 1 bit on the built-in digits, as one table.
#include <ATen/Parallel.h>
#include <stdlib.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <system_error>
#include <vector>

#include "bie/models/model_file.h"
#include "bie/train/device.h"
#include "bie/train/evaluation.h"
#include "cli/commands/commands.h"
#include "cli/support/interrupt.h"
#include "cli/support/log.h"
#include "cli/support/output.h"
#include "cli/support/result.h"
#include "cli/support/run_page.h"
#include "cli/support/session.h"
#include "cli/support/text.h"
#include "report/comparison_report.h"

namespace bie::cli {
namespace {

constexpr const char* keeps_nothing = "interrupted; the demo keeps nothing";

struct Line {
  std::string name;
  double quantised;
  std::vector<double> accuracies;  ///< one a seed
  double flipped;                  ///< mean over the seeds
  std::uintmax_t bytes;
  std::shared_ptr<models::Classifier> model;  ///< of the first seed, as read back
  double seconds_1, seconds_256;              ///< an image

  double mean_accuracy() const {
    return std::accumulate(accuracies.begin(), accuracies.end(), 0.0) / static_cast<double>(accuracies.size());
  }
};

/// A folder that nobody else can put anything into, gone with the object.
struct ScratchFolder {
  std::filesystem::path path;

  ScratchFolder() {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    TORCH_CHECK_VALUE(!error, "the folder of temporary files, TMPDIR or /tmp, cannot be used: ", error.message());
    std::string name = (parent / "bie-demo-XXXXXX").string();
    TORCH_CHECK_VALUE(::mkdtemp(name.data()) != nullptr, name, ": the folder cannot be made: ", std::strerror(errno));
    path = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
};

/// Trains one net per seed and reports the results of the saved files, as a user would get them.
Line measure(const std::string& name, int bits, const data::Dataset& data, train::TrainOptions options, int seeds) {
  Line line{name, 0, {}, 0, 0, nullptr, 0, 0};
  models::ModelConfig config;
  config.bits = bits;
  for (int i = 0; i < seeds; ++i, ++options.seed) {
    const std::string label = c10::str(name, " bit, seed ", options.seed);
    const Session session = train_with_bar(label, config, data, options);
    if (session.result.end == train::End::interrupted) throw Interrupted(keeps_nothing);
    const ScratchFolder folder;
    const std::filesystem::path file = folder.path / "model.safetensors";
    models::save_model(*session.model, file.string());
    const auto loaded = models::load_classifier(file.string());
    loaded->to(options.device);
    line.bytes = std::filesystem::file_size(file);
    const double accuracy = train::accuracy(*loaded, data.test_images, data.test_labels);
    TORCH_CHECK(accuracy == session.result.test_score, "the saved ", bits,
                "-bit model predicts differently: ", accuracy, " instead of ", session.result.test_score);
    line.accuracies.push_back(accuracy);
    line.flipped += session.result.flipped / seeds;
    if (i > 0) continue;
    line.model = loaded;
    line.quantised = static_cast<double>(loaded->quantised_count()) / static_cast<double>(loaded->weight_count());
  }
  return line;
}

/// One CPU thread, the models in turn, the median of five medians: the machine's other work disturbs all alike.
void measure_latency(std::vector<Line>& lines, const at::Tensor& images) {
  constexpr int rounds = 5;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto median = [](std::array<double, rounds> values) {
    std::sort(values.begin(), values.end());
    return values[rounds / 2];
  };
  std::vector<std::array<double, rounds>> one(lines.size()), many(lines.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (was_interrupted()) throw Interrupted(keeps_nothing);
      one[i][round] = train::latency(*lines[i].model, images, 1, 100);
      many[i][round] = train::latency(*lines[i].model, images, 256, 10) / 256;
    }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].seconds_1 = median(one[i]);
    lines[i].seconds_256 = median(many[i]);
  }
  at::set_num_threads(threads);
}

constexpr const char* twin_note =
    "1*: the twin whose 1-bit weights stay as they started. A task where it scores nearly as high, as digits, is a "
    "smoke test of 1-bit training and no proof.";

void print_table(const std::vector<Line>& lines) {
  std::printf("%4s %9s %8s %-11s %7s %9s %12s %12s\n", "bits", "quantised", "accuracy", "    (range)", "flipped",
              "bytes", "us at 1     ", "us at 256   ");
  for (const Line& l : lines) {
    const auto [low, high] = std::minmax_element(l.accuracies.begin(), l.accuracies.end());
    const std::string range = l.accuracies.size() > 1 ? format("%.2f-%.2f", 100 * *low, 100 * *high) : "";
    const std::string flipped = std::isnan(l.flipped) ? "-" : format("%.1f %%", 100 * l.flipped);
    std::printf("%4s %7.1f %% %6.2f %% %-11s %7s %9ju %6.1f %4.1fx %6.2f %4.1fx\n", l.name.c_str(), 100 * l.quantised,
                100 * l.mean_accuracy(), range.c_str(), flipped.c_str(), l.bytes, 1e6 * l.seconds_1,
                lines[0].seconds_1 / l.seconds_1, 1e6 * l.seconds_256, lines[0].seconds_256 / l.seconds_256);
  }
  std::printf(
      "%s\n%s\n",
      wrapped("quantised: share of all weights; accuracy: of the test images, mean and range of the seeds; flipped: "
              "1-bit weights whose sign changed in training; us: of an image, alone and in a batch of 256, on one "
              "CPU thread, and how many times as fast as at 32 bits.")
          .c_str(),
      wrapped(twin_note).c_str());
}

void write_page(const std::string& path, const std::vector<Line>& lines, const train::TrainOptions& options,
                const std::string& words) {
  report::ComparisonReport page;
  page.title = "One net at 32, 8, 4 and 1 bit on digits";
  page.when = utc_now();
  page.command = "bie " + words;
  page.notes = {twin_note};
  for (const Line& l : lines)
    page.widths.push_back({l.name, l.quantised, l.accuracies, l.flipped, l.bytes, l.seconds_1, l.seconds_256});
  page.configuration = {{"epochs", std::to_string(options.epochs)}, {"first seed", std::to_string(options.seed)}};
  page.machine = machine_facts();
  write_text("report", path, report::html(page));
}

}  // namespace

void add_demo(CLI::App& app, const Global& global) {
  struct Arguments {
    train::TrainOptions options;
    std::string device = "cpu", report;
    int seeds = 1;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("demo", "Train one net at 32, 8, 4 and 1 bit on digits and compare");
  command->add_option("--epochs", arguments->options.epochs, "passes over the training images")->capture_default_str();
  add_seed(*command, arguments->options.seed, "the first seed");
  command->add_option("--seeds", arguments->seeds, "how many seeds to average over")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  add_device(*command, arguments->device);
  takes_file(command->add_option("--report", arguments->report, "where to write the comparison as a page (HTML)"));
  command->footer("Examples:\n  bie demo\n  bie demo --seeds 3 --json");
  command->callback([arguments, &global] {
    CommandFiles().writes("--report", arguments->report);
    arguments->options.device = train::device_of(arguments->device);
    const data::Dataset data = data::load_dataset("digits");
    const models::ModelConfig c;
    log::info(c10::str("digits: ", data.train_images.size(0), " training and ", data.test_images.size(0),
                       " test images; mlp 64-", c.hidden, "x", models::layer_names(c).size() - 1, "-10, ",
                       arguments->options.epochs, " epochs, ", arguments->seeds, " seed(s), ", at::get_num_threads(),
                       " threads"));
    std::vector<Line> lines;
    train::TrainOptions options = arguments->options;
    for (const int bits : {32, 8, 4, 1})
      lines.push_back(measure(std::to_string(bits), bits, data, options, arguments->seeds));
    options.freeze_binary = true;
    lines.push_back(measure("1*", 1, data, options, arguments->seeds));
    measure_latency(lines, data.test_images);
    if (!arguments->report.empty()) {
      write_page(arguments->report, lines, arguments->options, shell_line(global.words));
      log::info("the comparison's page is " + arguments->report);
    }
    if (global.json) {
      Json widths = Json::array();
      for (const Line& l : lines)
        widths.push_back({{"name", l.name},
                          {"quantised", l.quantised},
                          {"test_accuracies", l.accuracies},
                          {"flipped", l.flipped},
                          {"file_bytes", l.bytes},
                          {"seconds_at_1", l.seconds_1},
                          {"seconds_at_256", l.seconds_256}});
      print_json("demo", {{"data", data.name}, {"widths", widths}});
      return;
    }
    print_table(lines);
  });
}

}  // namespace bie::cli
