#include "bie/train/recipe.h"

#include <c10/util/Exception.h>

namespace bie::train {

const char* name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adam: return "adam";
    case OptimizerKind::sgd: return "sgd";
    default: return "diodemix";
  }
}

OptimizerKind optimizer_of(const std::string& text) {
  for (const OptimizerKind kind : {OptimizerKind::diodemix, OptimizerKind::adam, OptimizerKind::sgd})
    if (text == name(kind)) return kind;
  TORCH_CHECK_VALUE(false, "the optimizer is '", text, "', diodemix, adam or sgd is wanted");
}

Recipe default_recipe(const nn::ModelConfig& config, OptimizerKind optimizer) {
  Recipe r{};
  const bool sgd = optimizer == OptimizerKind::sgd;
  r.lr = sgd ? (config.norm ? 0.05 : 0.01) : config.bits == 1 ? 5e-3 : 1e-3;
  r.weight_decay = sgd ? 5e-4 : 0;
  r.integer_lr = 1e-3;
  r.integer_memory = 0.3;
  r.schedule = {optim::ScheduleKind::cosine, sgd ? 0.02 : 0.0};
  return r;
}

}  // namespace bie::train
