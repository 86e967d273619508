// Step sizes from values: the search behind post-training quantisation.
#include "bie/ops/step_sizes.h"
#include "bie/train/post_training.h"
#include "layers/named.h"

namespace bie::train {
namespace {

constexpr layers::Named<StepRule> rules[] = {{StepRule::mse, "mse"}, {StepRule::percentile, "percentile"}};

}  // namespace

const char* name(StepRule rule) { return layers::name_of(rules, rule); }

StepRule step_rule_of(const std::string& text) { return layers::value_of(rules, "the rule for step sizes", text); }

at::Tensor step_sizes(const at::Tensor& values, int bits, StepRule rule, double percentile) {
  return ops::step_sizes(values, bits, name(rule), percentile);
}

double step_size(const at::Tensor& values, int bits, StepRule rule, double percentile) {
  return step_sizes(values.reshape({1, -1}), bits, rule, percentile).item<double>();
}

}  // namespace bie::train
