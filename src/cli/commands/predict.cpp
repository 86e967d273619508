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
#include "cli/support/log.h"
#include "cli/support/predictions.h"
#include "cli/support/result.h"
#include "cli/support/run_files.h"
#include "cli/support/session.h"
#include "cli/support/text.h"
#include "cli/support/threads.h"

namespace bie::cli {
namespace {

struct Arguments {
  std::string model, device = "cpu";
  std::vector<std::string> files;
  std::optional<double> white;
  AnswerOptions answers;
  data::DataOptions table;
};

void add_predictions(models::Classifier& model, const std::string& file, const Arguments& a, Predictions* found) {
  const models::ModelConfig& c = model.config();
  const data::Samples samples =
      data::load_samples(file, {{c.image.begin(), c.image.end()},
                                c.takes_numbers() ? formats::InputRange::numbers : formats::InputRange::unit,
                                a.white,
                                a.table.form,
                                a.table.asked,
                                a.table.csv,
                                c.fit});
  const std::int64_t top = std::min<std::int64_t>(a.answers.top, c.classes), count = samples.facts.count;
  found->tables = found->tables && samples.facts.is_table;
  found->id_name = samples.facts.id_name;
  for (const std::string& note : samples.facts.notes) log::warn(note);
  use_threads_for(c, std::min(count, train::evaluation_batch));
  const at::Tensor outputs = train::logits(model, samples.images);
  if (c.is_regression()) {
    const at::Tensor values = train::answers(*c.table, outputs);
    for (std::int64_t i = 0; i < count; ++i) {
      Prediction prediction = prediction_of(file, samples.facts, i);
      prediction.value = values[i][0].item<double>();
      found->all.push_back(std::move(prediction));
    }
    return;
  }
  const at::Tensor probabilities = at::softmax(outputs, 1).contiguous();
  const auto [shares, classes] = at::topk(probabilities, top);
  for (std::int64_t i = 0; i < count; ++i) {
    Prediction prediction = prediction_of(file, samples.facts, i);
    for (std::int64_t j = 0; j < top; ++j)
      prediction.guesses.push_back({c.class_name(classes[i][j].item<std::int64_t>()), shares[i][j].item<double>()});
    if (a.answers.probabilities) {
      const float* const row = probabilities.const_data_ptr<float>() + i * c.classes;
      prediction.probabilities.assign(row, row + c.classes);
    }
    found->all.push_back(std::move(prediction));
  }
}

void predict(Arguments& a, const Global& global) {
  a.model = model_file(a.model);
  a.files = files_in(a.files);
  check_predictions_file(a.answers.out, a.model, a.files);
  const AskedFiles asked{a.files, a.white, a.table.asked, a.table.csv};
  if (is_net(a.model)) return predict_with_net(a.model, asked, a.answers, global);
  const c10::Device device = train::device_of(a.device);
  const auto model = models::load_classifier(a.model);
  model->to(device);
  use_form(a.table, "", model->config());
  const models::ModelConfig& c = model->config();
  Predictions found{.model = a.model,
                    .regression = c.is_regression(),
                    .table = asked_form(c.table, a.table.asked),
                    .top = a.answers.top_given};
  for (std::int64_t i = 0; a.answers.probabilities && i < c.classes; ++i) found.classes.push_back(c.class_name(i));
  for (const std::string& file : a.files) add_predictions(*model, file, a, &found);  // all before anything is said
  print_predictions(found, a.answers.out, global);
}

}  // namespace

void add_predict(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("predict", "What a model says of images, or of a table's rows");
  command
      ->add_option("model", arguments->model,
                   "file written by bie train, bie quantize or bie export, or the folder of a run")
      ->required();
  command
      ->add_option("files", arguments->files,
                   "PNG, JPEG, WebP, IDX (.gz or not), NPY or CSV files, or folders of such files; - is a table from "
                   "standard input")
      ->required();
  add_answer_options(*command, arguments->answers);
  command
      ->add_option("--white", arguments->white,
                   "the files' value of white (default: 255 for bytes, 1 for other numbers)")
      ->check(bad_white);
  add_device(*command, arguments->device);
  add_asked_table_options(*command, arguments->table);
  command->footer(
      "Examples:\n"
      "  bie predict mnist4.safetensors three.png seven.png\n"
      "  bie predict mnist4.safetensors t10k-images-idx3-ubyte.gz --top 1\n"
      "  bie predict iris8.safetensors flowers.csv -o answers.csv --probabilities\n"
      "  bie predict iris8.safetensors flowers.csv --json | jq '.predictions[].guesses'");
  command->callback([arguments, &global] { predict(*arguments, global); });
}

}  // namespace bie::cli
