// The epochs that a run has behind it: what its log and its report show, and what decides whether it goes on.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace bie::train {

/// Results of one epoch.
struct Epoch {
  std::int64_t epoch;  ///< epochs done, this one included
  std::int64_t step;   ///< steps done
  double loss;         ///< mean over the epoch's steps
  double test_score;   ///< Task::metric of the test samples; of classification the share that is right
  double rate;         ///< of the float parameters, in its last step
  double seconds = 0;  ///< spent on it by every process of the run, the test included
  std::map<std::string, double> step_sizes = {};  ///< of the activations at its end, by layer
  std::map<std::string, double> flipped = {};     ///< share of a layer's binary weights whose sign is not the start's
  /// Task::metric of the training samples as they were trained on, counted as the loss is; NaN in histories of builds
  /// that did not count.
  double train_score = std::numeric_limits<double>::quiet_NaN();
  /// Learning rate of the int8 weights in the last step; NaN if none are trained.
  double integer_rate = std::numeric_limits<double>::quiet_NaN();
  /// Task::metric of the samples set aside to choose by; NaN without any.
  double validation_score = std::numeric_limits<double>::quiet_NaN();
};

/// One epoch as a JSON object, NaN as null, and the history as an array of them.
std::string epoch_json(const Epoch& epoch);
std::string history_json(const std::vector<Epoch>& history);
/// Throws a ValueError for text that history_json has not written.
std::vector<Epoch> parse_history(const std::string& json);

/// Score by which epochs are compared: the validation score, or the test score if no samples were set aside.
double judged_by(const Epoch& epoch);

/// The index of the epoch that is judged best, the first of equals; -1 for an empty history.
std::int64_t best_epoch(const std::vector<Epoch>& history);

/// Whether `patience` epochs have passed since the best one; never for a patience of 0.
bool out_of_patience(const std::vector<Epoch>& history, std::int64_t patience);

}  // namespace bie::train
