#include "kernels/arithmetic/estimator.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

void sign_pass(const float* xs, float* up, float* terms, std::int64_t count, float gain, float bound) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Estimate e = sign_estimate(xs[i], up[i] * gain, bound);
    terms[i] = e.term;
    up[i] = e.grad;
  }
}

void quantizer_pass(const float* xs, float* up, float* terms, std::int64_t count, float gain,
                    const QuantizerEstimator& estimator) {
  const QuantizerEstimator by = estimator;  // the loop's own, which no store can change
  for (std::int64_t i = 0; i < count; ++i) {
    const Estimate e = quantizer_estimate(xs[i], up[i] * gain, by);
    terms[i] = e.term;
    up[i] = e.grad;
  }
}

}  // namespace

const InputGradPasses BIE_PASS_SET::input_grad_passes = {sign_pass, quantizer_pass};

}  // namespace bie::kernels::cpu
