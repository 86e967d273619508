// DiodeMix: one optimizer for float parameters and for binary weights held as int8.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace bie::optim {

struct DiodeMixOptions {
  double lr = 1e-4;
  double beta1 = 0.99, beta2 = 0.9999;
  double eps = 1e-6;
  double weight_decay = 0;
  bool correct_bias = true;
};

/// Float parameters (numerics.md section 10): Adam,
///   l = b1*l + (1-b1)*g,  s = b2*s + (1-b2)*g^2,  p -= lr * sqrt(1-b2^t)/(1-b1^t) * l / (sqrt(s)+eps),  p -= lr*wd*p.
/// Binary weights (int8): l = lerp(l, g, 1-b1),  s = lerp(s, lr*sgn(l), 1-b2); every weight whose sign differs from
///   -sgn(s) (0 counts as +1) is negated. s starts as -sgn(w)*U(0,1)*1e-3, l as 0.
/// One step is one pass over each parameter and its two float32 moments.
/// Source: BITorch Engine 0.2.6 `DiodeMix`.
class DiodeMix {
 public:
  struct Group {
    std::vector<at::Tensor> params;
    DiodeMixOptions options;
  };

  /// A ValueError for lr, eps or weight_decay < 0, betas outside [0, 1), a parameter that is neither float32 nor int8.
  /// `seed` starts the generator of the binary weights' initial state.
  explicit DiodeMix(std::vector<Group> groups, std::uint64_t seed = 0);

  /// Uses each parameter's .grad (int8 or float for int8 weights). Float parameters without a gradient are skipped; an
  /// int8 weight without one is an error where others have theirs, because its layer's training would be lost silently.
  void step();
  void zero_grad();

  std::vector<Group>& groups() { return groups_; }

 private:
  struct State {
    at::Tensor exp_avg_l, exp_avg_s;
    std::int64_t step = 0;
  };
  void step_one(at::Tensor& param, State& state, const DiodeMixOptions& options);

  std::vector<Group> groups_;
  std::vector<std::vector<State>> states_;
  at::Generator generator_;
};

}  // namespace bie::optim
