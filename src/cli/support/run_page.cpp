#include "cli/support/run_page.h"

#include <ATen/Parallel.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "bie/layers/nbit_layer.h"
#include "bie/train/class_scores.h"
#include "bie/train/evaluation.h"
#include "cli/support/build_info.h"
#include "cli/support/importance.h"
#include "cli/support/run_results.h"
#include "cli/support/text.h"
#include "report/runs_report.h"

namespace bie::cli {
namespace {

constexpr std::int64_t most_mistakes = 12;

/// The weight's values in 32 bins.
report::Histogram histogram_of(const models::ProductLayer& product) {
  const at::Tensor* weight = product.layer->named_parameters(/*recurse=*/false).find("weight");
  if (weight == nullptr || !weight->defined()) return {};
  const at::Tensor values = weight->detach().cpu().to(at::kFloat);
  const double largest = std::max(values.abs().max().item<double>(), 1e-12);
  constexpr std::int64_t bins = 32;
  const at::Tensor counts = at::histc(values, bins, -largest, largest);
  report::Histogram histogram{-largest, largest, {}};
  for (std::int64_t i = 0; i < bins; ++i)
    histogram.counts.push_back(static_cast<std::uint64_t>(counts[i].item<double>()));
  return histogram;
}

report::Layer layer_of(const models::ProductLayer& product) {
  report::Layer layer;
  layer.name = product.name;
  const auto* low = dynamic_cast<const layers::QuantLayer*>(product.layer.get());
  std::int64_t weights = 0;
  if (low != nullptr) {
    layer.kind = low->kind();
    layer.shape = low->weight_shape();
    weights = low->weight_count();
  } else if (const at::Tensor* weight = product.layer->named_parameters(/*recurse=*/false).find("weight")) {
    layer.shape = weight->sizes().vec();
    layer.kind = layer.shape.size() == 4 ? "Conv2d" : "Linear";
    weights = weight->numel();
  }
  layer.weight_bits = layer.activation_bits = low != nullptr ? low->weight_bits() : 32;
  layer.bytes = static_cast<std::uint64_t>((weights * layer.weight_bits + 7) / 8);
  layer.weights = histogram_of(product);
  return layer;
}

/// An epoch's value for a layer, or report::unknown.
double value_of(const std::map<std::string, double>& by_layer, const std::string& name) {
  const auto found = by_layer.find(name);
  return found == by_layer.end() ? report::unknown : found->second;
}

void add_epochs(const std::vector<train::Epoch>& history, report::Layer* layer) {
  for (const train::Epoch& epoch : history) {
    layer->step_sizes.push_back(value_of(epoch.step_sizes, layer->name));
    layer->flipped.push_back(value_of(epoch.flipped, layer->name));
  }
}

report::Picture picture_of(const at::Tensor& image) {
  const at::Tensor pixels = image.clamp(0, 1).mul(255).round().to(at::kByte).permute({1, 2, 0}).contiguous();
  const auto* first = pixels.const_data_ptr<std::uint8_t>();
  return {static_cast<int>(image.size(2)),
          static_cast<int>(image.size(1)),
          static_cast<int>(image.size(0)),
          {first, first + pixels.numel()}};
}

/// The confusion table and the mistakes that the model is surest of.
void add_predictions(const models::ModelConfig& c, const at::Tensor& logits, const data::Dataset& data,
                     report::RunReport& report) {
  const auto [confidence, predicted] = at::softmax(logits, 1).max(1);
  const std::int64_t count = predicted.numel();
  const auto* guess = predicted.const_data_ptr<std::int64_t>();
  const auto* truth = data.test_labels.const_data_ptr<std::int64_t>();
  report.confusion = confusion_of(logits, data.test_labels, c);
  const train::ClassScores scores = train::class_scores(logits, data.test_labels);
  report.results.insert(report.results.begin() + 1,
                        {{"balanced accuracy", format("%.2f %%", 100 * scores.balanced_accuracy)},
                         {"AUC", std::isnan(scores.auc) ? "none" : format("%.4f", scores.auc)},
                         {"share of the commonest class", format("%.2f %%", 100 * scores.majority)}});
  const at::Tensor order = std::get<1>(confidence.sort(0, /*descending=*/true));
  const bool pictures = !data.table && (c.image[0] == 1 || c.image[0] == 3);
  for (std::int64_t i = 0; i < count && static_cast<std::int64_t>(report.mistakes.size()) < most_mistakes; ++i) {
    const std::int64_t row = order[i].item<std::int64_t>();
    if (!pictures || guess[row] == truth[row]) continue;
    report.mistakes.push_back({picture_of(data::pixels(data.test_images[row])), c.class_name(truth[row]),
                               c.class_name(guess[row]), confidence[row].item<double>()});
  }
}

/// The errors in the table's unit, and what was predicted beside what is.
void add_answers(const formats::TableForm& table, const at::Tensor& outputs, const data::Dataset& data,
                 report::RunReport& report) {
  const auto [mae, rmse] = train::regression_errors(table, outputs, data.test_labels);
  report.results.insert(report.results.begin() + 1,
                        {{"mean error", format("%.4g", mae)}, {"root mean square error", format("%.4g", rmse)}});
  const auto numbers = [&](const at::Tensor& values) {
    const auto* first = values.const_data_ptr<double>();
    return std::vector<double>(first, first + values.numel());
  };
  report.answers = {numbers(train::labels(table, data.test_labels)), numbers(train::answers(table, outputs)),
                    table.label};
}

void add_results(const train::TrainResult& result, const models::Classifier& model, const data::Dataset& data,
                 report::RunReport& report) {
  const std::string score = "test " + report.metric.name;
  const auto text = [&](double value) { return report::with_unit(value, report.metric.unit); };
  if (result.end != train::End::interrupted)
    report.results.push_back(
        {score, report::score_with_interval(result.test_score, data.test_images.size(0), report.metric)});
  else if (!result.history.empty())
    report.results.push_back(
        {c10::str(score, " after epoch ", result.history.back().epoch), text(result.history.back().test_score)});
  if (!std::isnan(result.flipped))
    report.results.push_back({"binary weights flipped", format("%.1f %%", 100 * result.flipped)});
  report.results.push_back(
      {"weights quantised", format("%.1f %%", 100.0 * static_cast<double>(model.quantised_count()) /
                                                  static_cast<double>(model.weight_count()))});
  report.results.push_back({"time", duration(result.seconds)});
}

}  // namespace

std::vector<report::Fact> facts_of(const Json& object) {
  std::vector<report::Fact> facts;
  for (const auto& [key, value] : object.items())
    if (!value.is_structured() && !value.is_null())
      facts.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
  return facts;
}

double flipped_of(const train::Epoch& epoch, const std::vector<models::ProductLayer>& products) {
  double flipped = 0, all = 0;
  for (const models::ProductLayer& product : products) {
    const auto found = epoch.flipped.find(product.name);
    const auto* low = dynamic_cast<const layers::QuantLayer*>(product.layer.get());
    if (found == epoch.flipped.end() || low == nullptr) continue;
    flipped += found->second * static_cast<double>(low->weight_count());
    all += static_cast<double>(low->weight_count());
  }
  return all > 0 ? flipped / all : report::unknown;
}

std::vector<report::Fact> machine_facts() {
  std::vector<report::Fact> facts = facts_of(build_info());
  facts.push_back({"threads", std::to_string(at::get_num_threads())});
  return facts;
}

std::string run_page(const Session& session, const data::Dataset& data, const Json& config, const PageParts& parts) {
  models::Classifier& model = *session.model;
  report::RunReport report;
  report.title = format("%d-bit %s on %s", model.config().bits, model.config().arch.c_str(), data.name.c_str());
  report.when = config["started"].get<std::string>();
  report.command = config["command"].get<std::string>();
  report.notes = parts.notes;
  report.ranks = parts.ranks;
  if (model.config().is_regression()) report.metric = {"R2", report::Unit::number};
  add_results(session.result, model, data, report);
  const std::vector<models::ProductLayer> products = model.products();
  for (const train::Epoch& e : session.result.history) {
    report::Epoch epoch;
    epoch.number = e.epoch;
    epoch.loss = e.loss;
    epoch.train_score = e.train_score;
    epoch.test_score = e.test_score;
    epoch.validation_score = e.validation_score;
    epoch.rate = e.rate;
    epoch.integer_rate = e.integer_rate;
    epoch.flipped = flipped_of(e, products);
    epoch.seconds = e.seconds;
    report.epochs.push_back(epoch);
  }
  for (const models::ProductLayer& product : products) {
    report.layers.push_back(layer_of(product));
    add_epochs(session.result.history, &report.layers.back());
  }
  if (const at::Tensor& outputs = session.result.test_outputs; outputs.defined()) {
    report.importance = importance_of(session, data);
    if (model.config().is_regression())
      add_answers(*model.config().table, outputs, data, report);
    else
      add_predictions(model.config(), outputs, data, report);
  }
  std::set<std::string> told{"format_version"};  // and the classes, which data and model both have
  for (const char* part : {"data", "model", "recipe"})
    for (report::Fact& fact : facts_of(config[part]))
      if (told.insert(fact.name).second) report.configuration.push_back(std::move(fact));
  report.machine = parts.machine;
  return report::html(report);
}

}  // namespace bie::cli
