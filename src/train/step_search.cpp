// Step sizes from values: the search behind post-training quantisation.
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "bie/kernels/step_search.h"
#include "bie/train/post_training.h"
#include "layers/named.h"

namespace bie::train {
namespace {

constexpr layers::Named<StepRule> rules[] = {{StepRule::mse, "mse"}, {StepRule::percentile, "percentile"}};

}  // namespace

const char* name(StepRule rule) { return layers::name_of(rules, rule); }

StepRule step_rule_of(const std::string& text) { return layers::value_of(rules, "the rule for step sizes", text); }

at::Tensor step_sizes(const at::Tensor& all, int bits, StepRule rule, double percentile) {
  TORCH_CHECK_VALUE(percentile > 0 && percentile <= 100, "the percentile is ", percentile,
                    ", a number above 0 and up to 100 is wanted");
  const at::Tensor values = all.detach().to(at::kCPU, at::kFloat).reshape({all.size(0), -1}).contiguous();
  at::Tensor steps = at::empty({values.size(0)}, at::kFloat);
  const kernels::StepValues rows{values.const_data_ptr<float>(), values.size(0), values.size(1), bits};
  if (rule == StepRule::percentile)
    kernels::percentile_steps(rows, percentile, steps.mutable_data_ptr<float>());
  else
    kernels::least_square_steps(rows, steps.mutable_data_ptr<float>());
  return steps.to(all.device());
}

double step_size(const at::Tensor& values, int bits, StepRule rule, double percentile) {
  return step_sizes(values.reshape({1, -1}), bits, rule, percentile).item<double>();
}

}  // namespace bie::train
