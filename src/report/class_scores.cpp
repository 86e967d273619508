#include "report/class_scores.h"

#include "report/number_text.h"

namespace bie::report {

std::vector<ClassScore> class_scores(const Confusion& confusion) {
  const std::size_t classes = confusion.classes.size();
  const auto& counts = confusion.counts;
  if (classes == 0 || counts.size() != classes * classes) return {};
  std::vector<std::uint64_t> truth(classes), predicted(classes);
  for (std::size_t i = 0; i < classes; ++i)
    for (std::size_t j = 0; j < classes; ++j) {
      truth[i] += counts[i * classes + j];
      predicted[j] += counts[i * classes + j];
    }
  const auto share = [](std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? unknown : static_cast<double>(part) / static_cast<double>(whole);
  };
  std::vector<ClassScore> scores;
  for (std::size_t i = 0; i < classes; ++i) {
    const std::uint64_t right = counts[i * classes + i];
    scores.push_back(
        {truth[i], share(right, predicted[i]), share(right, truth[i]), share(2 * right, truth[i] + predicted[i])});
  }
  return scores;
}

}  // namespace bie::report
