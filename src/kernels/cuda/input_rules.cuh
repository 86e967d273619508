// Elementwise rules of an activation's gradients, and the per-block partial sums that a pass leaves.
#pragma once

#include "bie/kernels/cuda/input_grad.h"
#include "kernels/arithmetic/estimator.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quotient.cuh"

namespace bie::kernels::cuda {

struct SignEstimator {
  float bound;

  __device__ Estimate operator()(float xs, float up) const { return sign_estimate(xs, up, bound); }
};

/// Estimator for a scale that FloatDivisor supports and that is at least the floor of the codes.
struct CodeEstimator {
  QuantizerEstimator clip;
  FloatDivisor divisor;

  __device__ Estimate operator()(float xs, float up) const { return quotient_estimate(divisor(xs), up, clip); }
};

/// Estimator for every other scale; divides.
struct RareCodeEstimator {
  QuantizerEstimator clip;
  float step;

  __device__ Estimate operator()(float xs, float up) const {
    Estimate e = quantizer_estimate(xs, up, clip);
    if (step != clip.divisor) e.code = round_clamped(xs / step, clip.lo, clip.hi);
    return e;
  }
};

/// body(estimator) with the rule's.
template <class Body>
__device__ void with_estimator(const InputRule& rule, float scale, const Body& body) {
  if (rule.signs) return body(SignEstimator{sign_bound(scale)});
  const QuantizerEstimator clip{rule.codes.lo, rule.codes.hi, clip_divisor(scale), rule.step.scaled ? scale : 1.0f,
                                rule.step.exact};
  if (FloatDivisor::takes(scale) && scale >= rule.codes.floor) return body(CodeEstimator{clip, FloatDivisor(scale)});
  body(RareCodeEstimator{clip, lifted(scale, rule.codes.floor)});
}

/// terms [term_count], whose sum is that of the gradient of the scale; sums [ranges, columns] of the bias's, where that
/// is wanted.
struct InputPartials {
  double* terms;
  std::int64_t term_count;
  float* sums;
  int ranges;
  std::int64_t columns;
};
inline InputPartials input_partials(void* workspace, std::int64_t terms, int ranges, std::int64_t columns) {
  const auto first = static_cast<double*>(workspace);
  return {first, terms, reinterpret_cast<float*>(first + terms), ranges, columns};
}
inline std::int64_t input_partial_bytes(const InputPass& pass, std::int64_t terms, int ranges, std::int64_t columns) {
  const std::int64_t sums = pass.grad_bias == nullptr ? 0 : ranges * columns;
  return terms * static_cast<std::int64_t>(sizeof(double)) + sums * static_cast<std::int64_t>(sizeof(float));
}

/// The gradients of the scale and of the bias, of what is left of them.
Status finish_input_grads(const InputPass&, const InputRule&, const Scalar& scale_a, const InputPartials&,
                          const Queue&);

}  // namespace bie::kernels::cuda
