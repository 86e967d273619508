#include "bie/train/history.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

namespace bie::train {

// The two functions that the JSON library finds beside Epoch.

static void to_json(nlohmann::json& json, const Epoch& e) {
  json = {{"epoch", e.epoch},
          {"step", e.step},
          {"loss", e.loss},
          {"train_accuracy", e.train_accuracy},
          {"test_accuracy", e.test_accuracy},
          {"rate", e.rate},
          {"integer_rate", e.integer_rate},
          {"seconds", e.seconds},
          {"step_sizes", e.step_sizes},
          {"flipped", e.flipped}};
}

static void from_json(const nlohmann::json& json, Epoch& e) {
  const auto read = [&](const char* key, auto& value) { json.at(key).get_to(value); };
  const auto read_known = [&](const char* key, double& value) {
    if (const auto found = json.find(key); found != json.end() && !found->is_null()) found->get_to(value);
  };
  read("epoch", e.epoch);
  read("step", e.step);
  read("loss", e.loss);
  read("test_accuracy", e.test_accuracy);
  read("rate", e.rate);
  read("seconds", e.seconds);
  read("step_sizes", e.step_sizes);
  read("flipped", e.flipped);
  read_known("train_accuracy", e.train_accuracy);
  read_known("integer_rate", e.integer_rate);
}

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
