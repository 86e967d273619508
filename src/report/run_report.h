// One training run as one HTML page: no network, no scripts, readable on paper and on a phone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/answers_chart.h"
#include "report/facts.h"
#include "report/number_text.h"

namespace bie::report {

/// The score that the epochs have. Shares and accuracies are between 0 and 1.
struct Metric {
  std::string name = "accuracy";
  Unit unit = Unit::percent;
};

struct Epoch {
  std::int64_t number = 0;  ///< from 1 on; ascending, with gaps where an epoch was not recorded
  double loss = unknown;    ///< mean over the training samples
  double train_score = unknown, test_score = unknown;  ///< RunReport::metric
  double rate = unknown;                               ///< of the float parameters, at the end of the epoch
  double integer_rate = unknown;                       ///< of the int8 weights, likewise
  double seconds = unknown;
  double flipped = unknown;           ///< share of binary weights whose sign differs from the start's
  double validation_score = unknown;  ///< RunReport::metric, of the samples set aside to choose by
};

struct Layer {
  std::string name, kind;                    ///< "layers.3", "BinaryLinear"
  int weight_bits = 0, activation_bits = 0;  ///< 0: not known; 32: float
  std::vector<std::int64_t> shape;           ///< of the weight
  std::uint64_t bytes = 0;                   ///< of the weight as it is saved; 0: not known
  Histogram weights;
  std::vector<double> step_sizes;  ///< of the activations, after each of RunReport::epochs
  std::vector<double> flipped;     ///< as Epoch::flipped, of this layer, after each of RunReport::epochs
};

struct Confusion {
  std::vector<std::string> classes;
  std::vector<std::uint64_t> counts;  ///< [classes, classes]: a row is the true class, a column the predicted one
};

struct Mistake {
  Picture picture;
  std::string truth, predicted;
  double confidence = unknown;  ///< probability given to `predicted`
};

/// One of the processes of a run that had several.
struct Rank {
  std::int64_t number = 0;
  std::string host, device;
  std::int64_t images = 0;   ///< that it trained with
  double seconds = unknown;  ///< of its steps
};

/// Every part may be left empty: what is not there has no section.
struct RunReport {
  std::string title;               ///< "4-bit LeNet on MNIST"
  std::string when;                ///< as it is shown: "2025-03-01 14:02 UTC"
  std::string command;             ///< the command line that repeats the run
  std::vector<std::string> notes;  ///< sentences: resumed, stopped early, stopped by the user
  std::vector<Fact> results;       ///< shown large, the most important first: {"test accuracy", "98.33 %"}
  Metric metric;
  std::vector<Epoch> epochs;
  std::vector<Layer> layers;
  Confusion confusion;
  Answers answers;
  std::vector<Mistake> mistakes;  ///< the worst first
  std::vector<Fact> importance;   ///< columns of a table, and what the score loses without what they say
  std::vector<Rank> ranks;
  std::vector<Fact> configuration;
  std::vector<Fact> machine;
};

/// The page. A pure function: the same report gives the same bytes. Nothing in a report can make it fail; what does not
/// fit together (a picture with too few pixels, counts that are not classes x classes) is left out.
std::string html(const RunReport& report);

}  // namespace bie::report
