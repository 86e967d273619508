// bie eval: the test accuracy of a saved model, of a run's, or of an exported net.
#include <ATen/ops/tensor.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "bie/data/dataset.h"
#include "bie/models/model_file.h"
#include "bie/train/device.h"
#include "bie/train/evaluation.h"
#include "cli/commands/commands.h"
#include "cli/nets/net_files.h"
#include "cli/support/inspect_weights.h"
#include "cli/support/log.h"
#include "cli/support/output.h"
#include "cli/support/result.h"
#include "cli/support/run_files.h"
#include "cli/support/session.h"
#include "cli/support/threads.h"

namespace bie::cli {
namespace {

struct Arguments {
  std::string model, data = "digits", logits, device = "cpu";
  data::DataOptions table;
};

/// The outputs of a net for images as the training half reads them.
at::Tensor net_outputs(const NetInfo& net, const at::Tensor& images, int threads) {
  const at::Tensor values = data::pixels(images).contiguous();
  const float* const first = values.const_data_ptr<float>();
  formats::Samples samples{.count = values.size(0), .values = {first, first + values.numel()}};
  at::Tensor outputs = at::tensor(run_net(net, samples, threads)).view({samples.count, -1});
  if (!net.is_regression() || net.table->version >= 2) return outputs;
  return (outputs.to(at::kDouble) - net.table->mean).div_(net.table->scale).to(at::kFloat);  // as it is learnt
}

/// A net's own configuration, as far as data are read by it.
models::ModelConfig config_of_net(const NetInfo& net, const std::string& path) {
  TORCH_CHECK_VALUE(!net.net.metadata("arch").empty(), path,
                    ": bie export has not written this net, which does not say how its values are scaled");
  models::ModelConfig c;
  c.image = {net.image[0], net.image[1], net.image[2]};
  c.classes = net.net.output().elements;
  c.class_names = net.classes;
  c.normalise = net.range == formats::InputRange::numbers && !net.table;
  c.table = net.table;
  c.fit = net.fit;
  return c;
}

/// bie evaluate has language models.
void refuse_language_model(const std::string& path) {
  TORCH_CHECK_VALUE(!is_language_model(path), path,
                    ": expected a net or a model of bie train, got a language model, which bie evaluate takes");
}

void eval(Arguments& a, const Global& global) {
  refuse_language_model(a.model);
  a.model = model_file(a.model);
  if (!a.logits.empty()) {
    CommandFiles files;
    files.reads(a.model, "the model's file");
    reads_data(files, a.data, a.table);
    files.writes("--logits", a.logits);
  }
  const c10::Device device = train::device_of(a.device);
  std::optional<NetInfo> net;
  std::shared_ptr<models::Classifier> model;
  if (is_net(a.model))
    net = load_net(a.model);
  else
    model = models::load_classifier(a.model);
  const models::ModelConfig config = net ? config_of_net(*net, a.model) : model->config();
  use_form(a.table, a.data, config);
  const data::Dataset data = data::load_dataset(a.data, a.table);
  tell_notes(data);
  if (data.test_is_training)
    log::warn(data.name + " is the table that the model was trained with: its rows are training rows, all of them");
  check_fit(config, a.model, data);
  const auto task = train::task_of(data);
  at::Tensor outputs;
  if (net) {
    outputs = net_outputs(*net, data.test_images, global.threads);
  } else {
    use_threads_for(config, std::min(data.test_images.size(0), train::evaluation_batch));
    model->to(device);
    outputs = train::logits(*model, data.test_images);
  }
  if (!a.logits.empty()) save_logits(outputs, a.logits);
  if (!global.json) {
    std::printf("%s %s\n", data.test_is_training ? "training" : "test", scores_text(*task, outputs, data).c_str());
    return;
  }
  Json json = {{"model", a.model}, {"data", data.name}};
  json.update(score_json(*task, outputs, data));
  json["test_samples"] = data.test_images.size(0);
  json["test_images"] = json["test_samples"];  // the older name, which schema 1 keeps
  json["rows"] = data.test_is_training ? "training" : "test";
  print_json("eval", json);
}

}  // namespace

void add_eval(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "Test accuracy of a saved model, or the errors of a regression");
  command
      ->add_option("model", arguments->model,
                   "file written by bie train, bie quantize or bie export, or the folder of a run")
      ->required();
  add_data(*command, arguments->data);
  add_device(*command, arguments->device);
  add_asked_table_options(*command, arguments->table);
  takes_file(command->add_option("--logits", arguments->logits, "where to save the test images' logits (safetensors)"));
  command->footer(
      "Examples:\n"
      "  bie eval mnist4.safetensors --data mnist:data/mnist\n"
      "  bie eval runs/flowers8 --data csv:held_out.csv\n"
      "  bie eval flowers8.net.bie --data csv:held_out.csv\n"
      "  bie eval mnist4.safetensors --data mnist:data/mnist --json | jq .test_accuracy");
  command->callback([arguments, &global] { eval(*arguments, global); });
}

}  // namespace bie::cli
