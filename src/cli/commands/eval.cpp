// bie eval: the test accuracy of a saved model.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "bie/data/dataset.h"
#include "bie/models/model_file.h"
#include "bie/train/device.h"
#include "bie/train/evaluation.h"
#include "cli/commands/commands.h"
#include "cli/support/output.h"
#include "cli/support/result.h"
#include "cli/support/session.h"
#include "cli/support/threads.h"

namespace bie::cli {

void add_eval(CLI::App& app, const Global& global) {
  struct Arguments {
    std::string model, data = "digits", logits, device = "cpu";
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "Test accuracy of a saved model");
  command->add_option("model", arguments->model, "file written by bie train or bie quantize")->required();
  add_data(*command, arguments->data);
  add_device(*command, arguments->device);
  takes_file(command->add_option("--logits", arguments->logits, "where to save the test images' logits (safetensors)"));
  command->footer(
      "Examples:\n"
      "  bie eval mnist4.safetensors --data mnist:data/mnist\n"
      "  bie eval mnist4.safetensors --data mnist:data/mnist --json | jq .test_accuracy");
  command->callback([arguments, &global] {
    const Arguments& a = *arguments;
    if (!a.logits.empty()) check_output("--logits", a.logits, a.model);
    if (!a.logits.empty()) check_output_against_data("--logits", a.logits, a.data);
    const c10::Device device = train::device_of(a.device);
    const auto model = models::load_classifier(a.model);
    const data::Dataset data = data::load_dataset(a.data);
    check_fit(*model, a.model, data);
    use_threads_for(model->config(), std::min(data.test_images.size(0), train::evaluation_batch));
    model->to(device);
    const double accuracy = train::accuracy(*model, data.test_images, data.test_labels);
    if (!a.logits.empty()) save_logits(*model, data.test_images, a.logits);
    if (global.json)
      print_json("eval", {{"model", a.model},
                          {"data", data.name},
                          {"test_accuracy", accuracy},
                          {"test_images", data.test_images.size(0)}});
    else
      std::printf("test accuracy %.2f %%\n", 100 * accuracy);
  });
}

}  // namespace bie::cli
