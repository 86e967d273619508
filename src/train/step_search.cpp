// Step sizes from values: the search behind post-training quantisation.
#include <ATen/ops/round.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "bie/train/post_training.h"
#include "layers/named.h"

namespace bie::train {
namespace {

constexpr layers::Named<StepRule> rules[] = {{StepRule::mse, "mse"}, {StepRule::percentile, "percentile"}};
constexpr double least_step = 1e-8;
// Values looked at: more do not move the result.
constexpr std::int64_t most_values = 1 << 18;

/// Evenly spaced columns of [rows, count], at most most_values in all.
at::Tensor thinned(const at::Tensor& values) {
  const std::int64_t count = values.size(1), wanted = std::max<std::int64_t>(most_values / values.size(0), 1);
  return count <= wanted ? values : values.slice(1, 0, count, (count + wanted - 1) / wanted);
}

/// [rows]: the magnitude that `percentile` per cent of a row's values do not exceed.
at::Tensor magnitudes(const at::Tensor& values, double percentile) {
  const at::Tensor sorted = std::get<0>(at::sort(values.abs(), 1));
  const auto last = static_cast<double>(sorted.size(1) - 1);
  return sorted.select(1, static_cast<std::int64_t>(std::llround(percentile / 100 * last)));
}

/// [rows]: the mean square of what steps [rows] change of [rows, count].
at::Tensor square_error(const at::Tensor& values, const at::Tensor& steps, int bits) {
  const double low = bits == 8 ? -128 : -8, high = bits == 8 ? 127 : 7;
  const at::Tensor step = steps.unsqueeze(1);
  return at::round(values / step).clamp_(low, high).mul_(step).sub_(values).square_().mean(1);
}

}  // namespace

const char* name(StepRule rule) { return layers::name_of(rules, rule); }

StepRule step_rule_of(const std::string& text) { return layers::value_of(rules, "the rule for step sizes", text); }

at::Tensor step_sizes(const at::Tensor& all, int bits, StepRule rule, double percentile) {
  TORCH_CHECK_VALUE(percentile > 0 && percentile <= 100, "the percentile is ", percentile,
                    ", a number above 0 and up to 100 is wanted");
  const at::Tensor values = thinned(all.detach().to(at::kFloat).reshape({all.size(0), -1}));
  const double codes = bits == 8 ? 127 : 7;
  if (rule == StepRule::percentile) return magnitudes(values, percentile).div_(codes).clamp_min_(least_step);
  // From clipping nothing down to a thirtieth of the range, in steps of 4 %.
  const at::Tensor widest = magnitudes(values, 100).div_(codes).clamp_min_(least_step);
  at::Tensor best = widest.clone(), least = square_error(values, widest, bits);
  constexpr int candidates = 84;
  for (int i = 1; i < candidates; ++i) {
    const at::Tensor steps = widest.mul(std::pow(0.96, i)).clamp_min_(least_step);
    const at::Tensor error = square_error(values, steps, bits);
    const at::Tensor better = error.lt(least);
    best = at::where(better, steps, best);
    least = at::where(better, error, least);
  }
  return best;
}

double step_size(const at::Tensor& values, int bits, StepRule rule, double percentile) {
  return step_sizes(values.reshape({1, -1}), bits, rule, percentile).item<double>();
}

}  // namespace bie::train
