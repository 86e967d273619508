#include "bie/train/recipe.h"

#include <algorithm>

#include "bie/models/architecture.h"
#include "layers/named.h"

namespace bie::train {
namespace {

constexpr layers::Named<OptimizerKind> kinds[] = {
    {OptimizerKind::diodemix, "diodemix"}, {OptimizerKind::adam, "adam"}, {OptimizerKind::sgd, "sgd"}};

}  // namespace

const char* name(OptimizerKind kind) { return layers::name_of(kinds, kind); }

OptimizerKind optimizer_of(const std::string& text) { return layers::value_of(kinds, "the optimizer", text); }

std::int64_t default_batch(std::int64_t images) {
  constexpr std::int64_t steps = 6, least = 8, most = 64;
  std::int64_t batch = least;
  while (batch < most && 2 * batch * steps <= images) batch *= 2;
  return batch;
}

TableDefaults table_defaults(std::int64_t rows, std::int64_t classes, int bits) {
  constexpr std::int64_t samples = 200000, least = 20, few_classes = 3;
  const bool many = classes > few_classes, soon = bits == 1 && !many;
  const std::int64_t hidden = many ? 256 : bits == 1 ? 128 : 64, most = soon ? 50 : 100;
  return {hidden, 1, std::clamp(samples / std::max<std::int64_t>(rows, 1), least, most)};
}

Recipe default_recipe(const models::ModelConfig& config, OptimizerKind optimizer) {
  Recipe r{};
  const bool sgd = optimizer == OptimizerKind::sgd;
  const models::Architecture& architecture = models::architecture_of(config);
  r.lr = sgd ? (architecture.deep ? 0.1 : config.norm ? 0.05 : 0.01) : config.bits == 1 ? 5e-3 : 1e-3;
  r.weight_decay = sgd ? 5e-4 : 0;
  const bool narrow_signs = architecture.narrow && config.bits == 1;  // few weights, which have to flip sooner
  r.integer_lr = narrow_signs ? 1e-2 : 1e-3;
  r.integer_memory = narrow_signs ? 0.1 : 0.3;
  r.schedule = {optim::ScheduleKind::cosine, sgd ? 0.02 : 0.0};
  return r;
}

}  // namespace bie::train
