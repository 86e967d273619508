// The kernels of input_grad, best first.
#include "bie/kernels/input_grad.h"

#include <algorithm>
#include <vector>

#include "kernels/arithmetic/estimator.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

/// The sum of the terms that body(begin, end, terms) writes, in float64. Blocks are of one size and added in order, so
/// the sum does not depend on the number of threads.
template <class Body>
double sum_of_terms(std::int64_t count, const Parallel& parallel, const Body& body) {
  constexpr std::int64_t block = 2048, lanes = 8;
  std::vector<double> sums(static_cast<std::size_t>((count + block - 1) / block));
  parallel_for(parallel, static_cast<std::int64_t>(sums.size()), 8, [&](std::int64_t first, std::int64_t last) {
    float terms[block];
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t begin = b * block, end = std::min(count, begin + block);
      body(begin, end, terms);
      std::fill(terms + (end - begin), terms + block, 0.0f);
      double acc[lanes] = {};
      for (std::int64_t i = 0; i < block; i += lanes)
        for (std::int64_t j = 0; j < lanes; ++j) acc[j] += static_cast<double>(terms[i + j]);
      double sum = 0;
      for (const double part : acc) sum += part;
      sums[static_cast<std::size_t>(b)] = sum;
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

template <const cpu::InputGradPasses& passes>
Status sign_backward(const InputPass& pass, float scale, double denominator, double* grad_scale,
                     const Parallel& parallel) {
  if (pass.count < 0) return Status::bad_shape;
  const float bound = sign_bound(scale);
  *grad_scale = sum_of_terms(pass.count, parallel,
                             [&](std::int64_t begin, std::int64_t end, float* terms) {
                               passes.sign(pass.xs + begin, pass.up + begin, terms, end - begin, pass.gain, bound);
                             }) /
                denominator;
  return Status::ok;
}

template <const cpu::InputGradPasses& passes>
Status quantizer_backward(const InputPass& pass, float scale, const CodeBounds& codes, const StepRule& rule,
                          double* grad_scale, const Parallel& parallel) {
  if (pass.count < 0) return Status::bad_shape;
  const QuantizerEstimator estimator{codes.lo, codes.hi, clip_divisor(scale), rule.scaled ? scale : 1.0f, rule.exact};
  const double sum = sum_of_terms(pass.count, parallel, [&](std::int64_t begin, std::int64_t end, float* terms) {
    passes.quantizer(pass.xs + begin, pass.up + begin, terms, end - begin, pass.gain, estimator);
  });
  *grad_scale = scale == 0 ? 0 : sum / rule.denominator;
  return Status::ok;
}

template <const cpu::InputGradPasses& passes>
constexpr InputGradKernel kernel(const char* name, Isa isa) {
  return {name, isa, nullptr, sign_backward<passes>, quantizer_backward<passes>};
}

}  // namespace

Table<InputGradKernel> input_grad_table() {
  static const InputGradKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx2::input_grad_passes>("input_grad_avx2", Isa::avx2),
#endif
    kernel<cpu::plain::input_grad_passes>("input_grad_reference", Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
