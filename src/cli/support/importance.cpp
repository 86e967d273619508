#include "cli/support/importance.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "bie/train/evaluation.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

constexpr std::int64_t most_rows = 2000;
constexpr std::size_t most_columns = 200, shown = 20;
constexpr int shuffles = 3;

at::Tensor shuffled(std::int64_t rows, std::mt19937_64& random) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return at::tensor(order);
}

}  // namespace

std::vector<report::Fact> importance_of(const Session& session, const data::Dataset& data) {
  if (!data.table || !data.table->named || data.table->columns.size() > most_columns) return {};
  const std::int64_t rows = std::min(data.test_images.size(0), most_rows);
  const at::Tensor images = data.test_images.slice(0, 0, rows), labels = data.test_labels.slice(0, 0, rows);
  const auto score = [&](const at::Tensor& inputs) {
    return train::mean_score(*session.task, train::logits(*session.model, inputs), labels);
  };
  const double whole = score(images);
  std::mt19937_64 random(0);
  std::vector<std::pair<double, std::string>> losses;
  std::int64_t first = 0;
  for (const formats::TableColumn& column : data.table->columns) {
    const std::int64_t end = first + column.features();
    double loss = 0;
    for (int i = 0; i < shuffles; ++i) {
      at::Tensor inputs = images.clone();
      inputs.slice(3, first, end).copy_(images.slice(3, first, end).index_select(0, shuffled(rows, random)));
      loss += (whole - score(inputs)) / shuffles;
    }
    losses.emplace_back(loss, column.name);
    first = end;
  }
  std::stable_sort(losses.begin(), losses.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<report::Fact> facts;
  const bool classes = session.task->metric() == "accuracy";
  for (std::size_t i = 0; i < std::min(losses.size(), shown); ++i)
    facts.push_back(
        {losses[i].second, classes ? format("%.2f points", 100 * losses[i].first) : format("%.4f", losses[i].first)});
  return facts;
}

}  // namespace bie::cli
