#include "cli/support/run_results.h"

#include <cmath>

#include "cli/support/output.h"

namespace bie::cli {
namespace {

constexpr std::int64_t most_classes = 1000;  // of a table of counts, which is their square

Json rows_of(const report::Confusion& confusion) {
  Json rows = Json::array();
  const std::size_t classes = confusion.counts.empty() ? 0 : confusion.classes.size();
  for (std::size_t i = 0; i < classes; ++i) {
    const auto first = confusion.counts.begin() + static_cast<std::ptrdiff_t>(i * classes);
    rows.push_back(std::vector<std::uint64_t>(first, first + static_cast<std::ptrdiff_t>(classes)));
  }
  return rows;
}

}  // namespace

report::Confusion confusion_of(const at::Tensor& logits, const at::Tensor& labels, const models::ModelConfig& c) {
  report::Confusion confusion;
  if (c.is_regression()) return confusion;
  for (std::int64_t i = 0; i < c.classes; ++i) confusion.classes.push_back(c.class_name(i));
  if (c.classes > most_classes) return confusion;
  const at::Tensor predicted = logits.argmax(1);
  const auto* guess = predicted.const_data_ptr<std::int64_t>();
  const auto* truth = labels.const_data_ptr<std::int64_t>();
  confusion.counts.assign(static_cast<std::size_t>(c.classes * c.classes), 0);
  for (std::int64_t i = 0; i < predicted.numel(); ++i)
    ++confusion.counts[static_cast<std::size_t>(truth[i] * c.classes + guess[i])];
  return confusion;
}

Json results_json(const Session& session, const data::Dataset& data, const std::string& model_file) {
  models::Classifier& model = *session.model;
  const train::TrainResult& result = session.result;
  const at::Tensor& logits = result.test_outputs;
  const report::Confusion confusion = confusion_of(logits, data.test_labels, model.config());
  const double loss = session.task->loss(logits, data.test_labels).item<double>();
  Json json = {{"schema", 1},
               {"metric", session.task->metric()},
               {"test_score", result.test_score},
               {"test_loss", std::isfinite(loss) ? Json(loss) : Json()},
               {"test_samples", data.test_images.size(0)},
               {"seconds", result.seconds},
               {"epochs", result.history.size()},
               {"weights", model.weight_count()},
               {"model_bytes", bytes_of(model_file)},
               {"classes", confusion.classes},
               {"confusion", rows_of(confusion)}};
  if (model.config().is_regression()) json.update(score_json(*session.task, logits, data));
  return json;
}

}  // namespace bie::cli
