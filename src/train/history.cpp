#include "bie/train/history.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

namespace bie::train {

// Found by the JSON library beside Epoch.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Epoch, epoch, step, loss, test_accuracy, rate, seconds, step_sizes, flipped)

std::string epoch_json(const Epoch& epoch) { return nlohmann::json(epoch).dump(); }

std::string history_json(const std::vector<Epoch>& history) { return nlohmann::json(history).dump(); }

std::vector<Epoch> parse_history(const std::string& json) {
  try {
    return nlohmann::json::parse(json).get<std::vector<Epoch>>();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, "the history of a run cannot be read (", error.what(), ")");
  }
}

std::int64_t best_epoch(const std::vector<Epoch>& history) {
  std::int64_t best = -1;
  for (std::size_t i = 0; i < history.size(); ++i)
    if (best < 0 || history[i].test_accuracy > history[static_cast<std::size_t>(best)].test_accuracy)
      best = static_cast<std::int64_t>(i);
  return best;
}

bool out_of_patience(const std::vector<Epoch>& history, std::int64_t patience) {
  return patience > 0 && static_cast<std::int64_t>(history.size()) - 1 - best_epoch(history) >= patience;
}

}  // namespace bie::train
