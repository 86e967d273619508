#include "bie/train/history.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "formats/json_text.h"

namespace bie::train {

// The two functions that the JSON library finds beside Epoch.

static void to_json(nlohmann::json& json, const Epoch& e) {
  json = {{"epoch", e.epoch},
          {"step", e.step},
          {"loss", e.loss},
          {"train_accuracy", e.train_score},
          {"test_accuracy", e.test_score},
          {"validation_accuracy", e.validation_score},
          {"rate", e.rate},
          {"integer_rate", e.integer_rate},
          {"seconds", e.seconds},
          {"step_sizes", e.step_sizes},
          {"flipped", e.flipped}};
}

static void from_json(const nlohmann::json& json, Epoch& e) {
  const auto read = [&](const char* key, auto& value) { json.at(key).get_to(value); };
  const auto count = [&](const char* key, std::int64_t& value) {
    const nlohmann::json& number = json.at(key);
    TORCH_CHECK_VALUE(formats::is_whole(number, 0, std::numeric_limits<std::int64_t>::max()),
                      "the history of a run cannot be read (", key, ": expected a whole number, got ",
                      formats::shown(number), ")");
    number.get_to(value);
  };
  const auto read_known = [&](const char* key, double& value) {
    if (const auto found = json.find(key); found != json.end() && !found->is_null()) found->get_to(value);
  };
  count("epoch", e.epoch);
  count("step", e.step);
  read("loss", e.loss);
  read("test_accuracy", e.test_score);
  read("rate", e.rate);
  read("seconds", e.seconds);
  read("step_sizes", e.step_sizes);
  read("flipped", e.flipped);
  read_known("train_accuracy", e.train_score);
  read_known("integer_rate", e.integer_rate);
  read_known("validation_accuracy", e.validation_score);
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

double judged_by(const Epoch& epoch) {
  return std::isnan(epoch.validation_score) ? epoch.test_score : epoch.validation_score;
}

std::int64_t best_epoch(const std::vector<Epoch>& history) {
  std::int64_t best = -1;
  for (std::size_t i = 0; i < history.size(); ++i)
    if (best < 0 || judged_by(history[i]) > judged_by(history[static_cast<std::size_t>(best)]))
      best = static_cast<std::int64_t>(i);
  return best;
}

bool out_of_patience(const std::vector<Epoch>& history, std::int64_t patience) {
  constexpr std::int64_t first_steps = 50;
  std::int64_t without = 0, best = best_epoch(history);
  for (auto i = static_cast<std::size_t>(best + 1); i < history.size(); ++i) without += history[i].step > first_steps;
  return patience > 0 && without >= patience;
}

}  // namespace bie::train
