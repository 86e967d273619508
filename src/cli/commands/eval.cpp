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
    data::DataOptions table;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "Test accuracy of a saved model, or the errors of a regression");
  command->add_option("model", arguments->model, "file written by bie train or bie quantize")->required();
  add_data(*command, arguments->data);
  add_device(*command, arguments->device);
  add_asked_table_options(*command, arguments->table);
  takes_file(command->add_option("--logits", arguments->logits, "where to save the test images' logits (safetensors)"));
  command->footer(
      "Examples:\n"
      "  bie eval mnist4.safetensors --data mnist:data/mnist\n"
      "  bie eval flowers8.safetensors --data csv:held_out.csv\n"
      "  bie eval mnist4.safetensors --data mnist:data/mnist --json | jq .test_accuracy");
  command->callback([arguments, &global] {
    Arguments& a = *arguments;
    if (!a.logits.empty()) check_output("--logits", a.logits, a.model);
    if (!a.logits.empty()) check_output_against_data("--logits", a.logits, a.data);
    const c10::Device device = train::device_of(a.device);
    const auto model = models::load_classifier(a.model);
    use_form(a.table, a.data, model->config());
    const data::Dataset data = data::load_dataset(a.data, a.table);
    tell_notes(data);
    check_fit(*model, a.model, data);
    use_threads_for(model->config(), std::min(data.test_images.size(0), train::evaluation_batch));
    model->to(device);
    const auto task = train::task_of(data);
    const at::Tensor outputs = train::logits(*model, data.test_images);
    if (!a.logits.empty()) save_logits(outputs, a.logits);
    if (!global.json) {
      std::printf("test %s\n", scores_text(*task, outputs, data).c_str());
      return;
    }
    Json json = {{"model", a.model}, {"data", data.name}};
    json.update(score_json(*task, outputs, data));
    json["test_images"] = data.test_images.size(0);
    print_json("eval", json);
  });
}

}  // namespace bie::cli
