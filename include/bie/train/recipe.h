// Optimizers and rates of `bie train`, with defaults per bit width that train without being tuned. docs/training.md has
// the measurements that chose them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bie/models/classifier.h"
#include "bie/optim/schedule.h"

namespace bie::train {

/// Optimizer of the float parameters. DiodeMix always steps integer weights.
enum class OptimizerKind {
  diodemix,  ///< DiodeMix's Adam
  adam,      ///< torch's AdamW
  sgd,       ///< torch's SGD with Nesterov momentum 0.9
};
/// "diodemix", "adam" or "sgd".
const char* name(OptimizerKind kind);
OptimizerKind optimizer_of(const std::string& name);  ///< A ValueError for any other name.

struct Recipe {
  double lr;              ///< of the float parameters
  double weight_decay;    ///< decoupled for diodemix and adam; on float weights of two or more dimensions
  double integer_lr;      ///< of the int8 weights
  double integer_memory;  ///< share of all steps over which DiodeMix remembers the votes on a sign: (1 / (1-beta2)) /
                          ///< steps
  optim::Schedule schedule;
};

/// 64 images a step, and fewer of a small data set, so that an epoch has several steps: the largest power of two, from
/// 8 on, that gives six.
std::int64_t default_batch(std::int64_t images);

/// The net and the epochs of a table, where the user says nothing: an mlp of `depth` inner linears of `hidden` outputs.
/// docs/measured/tables.md has the measurements that chose them.
struct TableDefaults {
  std::int64_t hidden, depth, epochs;
};
/// @param classes  1 of a regression.
TableDefaults table_defaults(std::int64_t rows, std::int64_t classes, int bits);

Recipe default_recipe(const models::ModelConfig& config, OptimizerKind optimizer);

}  // namespace bie::train
