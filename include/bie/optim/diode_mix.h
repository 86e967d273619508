// DiodeMix: one optimizer for float parameters, binary weights held as int8 and 8- or 4-bit codes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bie::layers {
class PackedWeight;
}

namespace bie::optim {

/// Something to train. A float tensor is one by itself; an int8 tensor says what it holds, a packed weight is its
/// layer's.
struct Param {
  at::Tensor tensor;
  std::string name;                              ///< in saved states; empty: its place in its group
  int bits = 32;                                 ///< of an int8 tensor: 1 for signs, 8 or 4 for codes
  at::Tensor scale_w;                            ///< float32, one element: a code's weight is code * scale_w
  std::shared_ptr<layers::PackedWeight> packed;  ///< with its words as `tensor`: where its gradient comes to

  Param(at::Tensor what, std::string called = {}, int width = 32, at::Tensor scale = {})
      : tensor(std::move(what)), name(std::move(called)), bits(width), scale_w(std::move(scale)) {}
  Param(std::shared_ptr<layers::PackedWeight> weight, std::string called);

  at::Tensor gradient() const;
};

struct DiodeMixOptions {
  double lr = 1e-4;
  double beta1 = 0.99, beta2 = 0.9999;
  double eps = 1e-6;
  double weight_decay = 0;
  bool correct_bias = true;
  std::int64_t renew_scale_every = 0;  ///< steps between new values of the codes' scale_w; 0 keeps the first
};

/// Each element of a parameter costs two moments. bfloat16 halves them; they are then rounded stochastically, because
/// one step changes a moment by less than a bfloat16 can hold.
enum class MomentType { float32, bfloat16 };

/// Source: docs/spec/optimizer.md. t counts a parameter's steps; u is a uniform number of this element and step.
/// Float parameters (Adam):
///   l = b1*l + (1-b1)*g,  s = b2*s + (1-b2)*g^2,  p -= lr * sqrt(1-b2^t)/(1-b1^t) * l / (sqrt(s)+eps),  p -= lr*wd*p.
/// Codes (int8, 8 or 4 bits), w = code * scale_w: the same step on w, then
///   code = floor(v + u), v = clamp(w / scale_w): a stochastic rounding.
/// Binary weights (int8): l = lerp(l, g, 1-b1),  s = lerp(s, lr*sgn(l), 1-b2); every weight whose sign differs from
///   -sgn(s) (0 counts as +1) is negated. s starts as -sgn(w)*u*1e-3, l as 0.
/// Packed codes: Adam's step on the weight as floats, each code then rounded at random; every fifth step the zeros move
///   first, by the mean of the step over their group. A table of codes or signs is stepped on the rows of its gradient.
/// An integer weight is left out of the step, its moments too, where its float gradient holds NaN or infinity, or where
/// its int8 gradient is all zeros, which is what int8_grad makes of such a one.
/// A step is one pass over each parameter, its gradient and its moments, on CUDA one launch for many parameters. Random
/// numbers are a function of seed, parameter, step and element: a state restored goes on to the bit, with any number of
/// threads. Source: BITorch Engine 0.2.6 `DiodeMix`; the rule for codes is ours.
class DiodeMix {
 public:
  struct Group {
    std::vector<Param> params;
    DiodeMixOptions options;
  };

  /// Throws a ValueError for lr, eps, weight_decay or renew_scale_every < 0, betas outside [0, 1), a parameter that is
  /// neither floating-point nor int8 with its bits said, a code without a scale, a parameter given twice.
  explicit DiodeMix(std::vector<Group> groups, std::uint64_t seed = 0, MomentType moments = MomentType::float32);

  /// Uses each parameter's .grad (int8 or float for int8 weights). Float parameters without a gradient are skipped; an
  /// integer weight without one is an error where others have theirs, because its layer's training would be lost
  /// silently; a packed one only where its layer ran in training.
  void step();
  void zero_grad();

  std::vector<Group>& groups() { return groups_; }

  /// Everything the next step depends on besides parameters and gradients: moments, step counts, the groups' options
  /// and the seed, by name ("<param>.exp_avg_l" and so on). Tensors are shared with the optimizer.
  std::map<std::string, at::Tensor> state() const;
  /// Takes a state of an optimizer with the same parameters; nothing is changed unless it fits. Throws a ValueError
  /// naming the entry for anything missing, extra or of another shape or dtype.
  void load_state(const std::map<std::string, at::Tensor>& state);
  /// Bytes of all moments held so far.
  std::int64_t state_bytes() const;

 private:
  struct State {
    at::Tensor exp_avg_l, exp_avg_s;
    std::int64_t step = 0;
  };
  std::string key(std::size_t group, std::size_t index) const;
  void start(const Param& param, State& state, std::int64_t stream) const;
  struct Batch;
  void add(const Param& param, State& state, const DiodeMixOptions& options, std::int64_t stream,
           std::vector<Batch>& batches) const;

  std::vector<Group> groups_;
  std::vector<std::vector<State>> states_;
  std::uint64_t seed_;
  MomentType moments_;
};

}  // namespace bie::optim
