// bie eval: the test accuracy of a saved model.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "bie/io/dataset.h"
#include "bie/nn/model_file.h"
#include "bie/train/device.h"
#include "bie/train/trainer.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"

namespace bie::cli {

void add_eval(CLI::App& app) {
  struct Arguments {
    std::string model, data = "digits", logits, device = "cpu";
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "Test accuracy of a saved model");
  command->add_option("model", arguments->model, "file written by bie train")->required();
  add_data(*command, arguments->data);
  add_device(*command, arguments->device);
  command->add_option("--logits", arguments->logits, "where to save the test images' logits (safetensors)");
  command->footer("Example: bie eval mnist4.safetensors --data mnist:data/mnist");
  command->callback([arguments] {
    if (!arguments->logits.empty()) check_output("--logits", arguments->logits, arguments->model);
    const c10::Device device = train::device_of(arguments->device);
    const auto model = nn::load_model(arguments->model);
    const io::Dataset data = io::load_dataset(arguments->data);
    const auto image = data.test_images.sizes().slice(1);
    TORCH_CHECK_VALUE(image == at::IntArrayRef(model->config().image), data.name, ": the images are ", image, ", ",
                      arguments->model, " wants ", at::IntArrayRef(model->config().image));
    model->to(device);
    std::printf("test accuracy %.2f %%\n", 100 * train::accuracy(*model, data.test_images, data.test_labels));
    if (!arguments->logits.empty()) save_logits(*model, data.test_images, arguments->logits);
  });
}

}  // namespace bie::cli
