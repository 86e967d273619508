#include "bie/train/class_scores.h"

#include <ATen/ops/softmax.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace bie::train {
namespace {

/// The area under the ROC curve by ranks (Mann and Whitney), equal values at their mean rank.
double area(const std::vector<double>& values, const std::vector<bool>& inside) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  double ranks = 0, count = 0;
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double rank = (static_cast<double>(first) + 1 + static_cast<double>(end)) / 2;
    for (; first < end; ++first)
      if (inside[order[first]]) {
        ranks += rank;
        ++count;
      }
  }
  const double others = static_cast<double>(values.size()) - count;
  return (ranks - count * (count + 1) / 2) / (count * others);
}

}  // namespace

ClassScores class_scores(const at::Tensor& outputs, const at::Tensor& labels) {
  const at::Tensor shares = at::softmax(outputs.detach().cpu().to(at::kDouble), 1).contiguous(),
                   truth = labels.cpu().contiguous(), guesses = outputs.argmax(1).cpu().contiguous();
  const auto samples = static_cast<std::size_t>(shares.size(0)), classes = static_cast<std::size_t>(shares.size(1));
  const auto* share = shares.const_data_ptr<double>();
  const auto *label = truth.const_data_ptr<std::int64_t>(), *guess = guesses.const_data_ptr<std::int64_t>();
  std::vector<double> count(classes), right(classes);
  for (std::size_t i = 0; i < samples; ++i) {
    const auto at = static_cast<std::size_t>(label[i]);
    ++count[at];
    right[at] += guess[i] == label[i];
  }
  const auto commonest = std::max_element(count.begin(), count.end());
  ClassScores found{commonest - count.begin(), *commonest / static_cast<double>(samples), 0, 0};
  double present = 0;
  std::vector<double> values(samples);
  std::vector<bool> inside(samples);
  for (std::size_t c = 0; c < classes; ++c) {
    if (count[c] == 0) continue;
    ++present;
    found.balanced_accuracy += right[c] / count[c];
    for (std::size_t i = 0; i < samples; ++i) {
      values[i] = share[i * classes + c];
      inside[i] = label[i] == static_cast<std::int64_t>(c);
    }
    if (found.majority < 1) found.auc += area(values, inside);
  }
  found.balanced_accuracy /= present;
  found.auc = found.majority < 1 ? found.auc / present : std::numeric_limits<double>::quiet_NaN();
  return found;
}

}  // namespace bie::train
