// bie run: what an exported net answers, without torch.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>

#include "cli/nets/net_files.h"
#include "cli/support/log.h"
#include "cli/support/predictions.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

struct Arguments {
  std::string net;
  AskedFiles asked;
};

std::int64_t largest(const float* row, std::int64_t count) { return std::max_element(row, row + count) - row; }

/// The probability of each class, in their order.
std::vector<double> softmax(const float* row, std::int64_t outputs) {
  const double most = *std::max_element(row, row + outputs);
  std::vector<double> shares;
  double sum = 0;
  for (std::int64_t j = 0; j < outputs; ++j) {
    shares.push_back(std::exp(static_cast<double>(row[j]) - most));
    sum += shares.back();
  }
  for (double& share : shares) share /= sum;
  return shares;
}

std::vector<Guess> likeliest(const NetInfo& net, const float* row, std::int64_t outputs, std::int64_t wanted) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(outputs));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return row[a] > row[b]; });
  const std::vector<double> shares = softmax(row, outputs);
  std::vector<Guess> guesses;
  for (std::int64_t j = 0; j < wanted; ++j) {
    const std::int64_t guess = order[static_cast<std::size_t>(j)];
    guesses.push_back({net.class_name(guess), shares[static_cast<std::size_t>(guess)]});
  }
  return guesses;
}

void run(const Arguments& a, const Global& global) {
  const NetInfo net = load_net(a.net);
  const std::int64_t outputs = net.net.output().elements;
  Json classes = Json::array(), logits = Json::array();
  std::string text;
  bool is_told = false;
  for (const std::string& file : a.asked.files) {
    const formats::Samples samples = load_samples(net, file, a.asked);
    tell_range(net, samples, &is_told);
    const std::vector<float> values = run_net(net, samples, global.threads);
    for (const std::string& note : samples.notes) log::warn(note);
    for (std::int64_t i = 0; i < samples.count; ++i) {
      const float* const row = values.data() + i * outputs;
      const std::string name = net.is_regression() ? formats::answer_text(*net.table, net.answer(row[0]))
                                                   : net.class_name(largest(row, outputs));
      classes.push_back(name);
      Json numbers = Json::array();
      std::string line = place_of(file, samples, i) + ": " + name + " ";
      for (std::int64_t j = 0; j < outputs; ++j) {
        numbers.push_back(static_cast<double>(row[j]));
        if (j < 10) line += format("%s%.4g", j == 0 ? "(" : ", ", static_cast<double>(row[j]));
      }
      logits.push_back(std::move(numbers));
      text += printable(line + (outputs > 10 ? ", ...)" : ")")) + "\n";
    }
  }
  if (global.json)
    print_json(
        "run",
        {{"net", a.net}, {"shape", Json::array({logits.size(), outputs})}, {"classes", classes}, {"logits", logits}});
  else
    std::printf("%s", text.c_str());
}

}  // namespace

void predict_with_net(const std::string& model, const AskedFiles& asked, const AnswerOptions& options,
                      const Global& global) {
  const NetInfo net = load_net(model);
  const std::int64_t outputs = net.net.output().elements, wanted = std::min<std::int64_t>(options.top, outputs);
  Predictions found{.model = model,
                    .regression = net.is_regression(),
                    .table = asked_form(net.table, asked.table),
                    .top = options.top_given};
  for (std::int64_t j = 0; options.probabilities && j < outputs; ++j) found.classes.push_back(net.class_name(j));
  bool is_told = false;
  for (const std::string& file : asked.files) {  // all before anything is said
    const formats::Samples samples = load_samples(net, file, asked);
    if (net.range == formats::InputRange::any) tell_range(net, samples, &is_told);
    const std::vector<float> values = run_net(net, samples, global.threads);
    found.tables = found.tables && samples.is_table;
    found.id_name = samples.id_name;
    for (const std::string& note : samples.notes) log::warn(note);
    for (std::int64_t i = 0; i < samples.count; ++i) {
      const float* const row = values.data() + i * outputs;
      Prediction prediction = prediction_of(file, samples, i);
      if (found.regression)
        prediction.value = net.answer(row[0]);
      else
        prediction.guesses = likeliest(net, row, outputs, wanted);
      if (options.probabilities) prediction.probabilities = softmax(row, outputs);
      found.all.push_back(std::move(prediction));
    }
  }
  print_predictions(found, options.out, global);
}

void add_run(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("run", "What an exported net answers to files of images");
  command->add_option("net", arguments->net, "file written by bie export")->required();
  command->add_option("--input", arguments->asked.files, "PNG, JPEG, WebP, IDX (.gz or not), NPY or CSV files")
      ->required();
  command
      ->add_option("--white", arguments->asked.white,
                   "the files' value of white (default: 255 for bytes, 1 for other numbers)")
      ->check(bad_white);
  command->footer(
      "Needs no torch, and takes one thread unless --threads says.\n"
      "Examples:\n"
      "  bie run mnist1.net.bie --input three.png\n"
      "  bie run mnist1.net.bie --input t10k-images-idx3-ubyte.gz --json | jq .classes");
  command->callback([arguments, &global] { run(*arguments, global); });
}

}  // namespace bie::cli
