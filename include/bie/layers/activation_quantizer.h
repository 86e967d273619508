// The quantised activation of a layer: its bias, its learned step size, and what keeps that one right in training.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "bie/layers/seen.h"
#include "bie/ops.h"

namespace torch::nn {
class Module;
}

namespace bie::layers {

/// Which values a layer computes where bie differs from BITorch Engine 0.2.6 on purpose (docs/spec/index.md, marked
/// with a dagger there). bie_0_2_6: x + bias_a is rounded back to a 16-bit x's dtype, gradients are
/// GradMode::reference, and the first batch of a 4-bit layer sets scale_a with the 8-bit constant 11.269.
enum class Compat { none, bie_0_2_6 };
/// "none" or "bie-0.2.6"; throws a ValueError for anything else.
Compat compat_of(const std::string& name);

/// Keeps a learned step size away from zero in training: scale_a >= floor * its first-batch value, whatever the
/// optimizer did. Never applied to a loaded scale, nor to a layer that has not trained. docs/training.md says why.
struct StepSizeGuard {
  float floor = 0.03f;  ///< in [0, 1]; 0 turns the guard off
};

/// A base of layers whose activation is quantised, beside QuantLayer:
///   bias_a   [features] zeros, learnable, added to the activation before it is quantised
///   scale_a  0-dim float32, learnable; 0 means that the first batch sets it
///   eps      0-dim float32, the smallest step size; undefined at 1 bit
class ActivationQuantizer {
 public:
  at::Tensor bias_a, scale_a, eps;

  virtual ~ActivationQuantizer() = default;

  void set_grad_mode(ops::GradMode mode) { grad_mode_ = mode; }
  ops::GradMode grad_mode() const { return compat_ == Compat::none ? grad_mode_ : ops::GradMode::reference; }
  void set_compat(Compat compat) { compat_ = compat; }
  Compat compat() const { return compat_; }
  /// Throws a ValueError unless the floor is a number in [0, 1].
  void set_step_size_guard(StepSizeGuard guard);
  StepSizeGuard step_size_guard() const { return guard_; }
  /// First-batch value of scale_a that the guard is relative to; 0 where there is none. A training checkpoint keeps it.
  float guarded_scale() const { return guarded_scale_; }
  void set_guarded_scale(float value);

  /// Bits of the activation: 8, 4 or 1. The weight's may differ.
  int activation_bits() const { return bits_; }

 protected:
  /// @param feature_axis  of x: -1, or 1 for images.
  ActivationQuantizer(int bits, std::int64_t features, std::int64_t feature_axis);

  /// First-batch scale_a / mean|x|.
  virtual double first_batch_factor() const = 0;
  /// Refuses a float x whose shape the layer cannot take, before it leaves a scale behind.
  virtual void check_input(const at::Tensor& x) const;

  /// Operands of an operator: x and its bias, with the step size initialised and guarded.
  struct Activation {
    at::Tensor x, bias_a;
  };
  Activation activation(const at::Tensor& x, bool training);
  /// A vector of channels, shaped and converted so that it broadcasts against a result of `like`'s dtype.
  at::Tensor along_features(const at::Tensor& channels, const at::Tensor& like) const;
  /// Least value that the guard allows scale_a; 0 if it does not limit it.
  float least_scale() const { return guard_.floor * guarded_scale_; }
  void guard_scale();
  /// eps as a number, cached until eps is written to, so that a pass on CUDA does not wait for it.
  double smallest_step() const;

 private:
  void first_batch_scale(const at::Tensor& x, bool training);

  int bits_;
  std::int64_t feature_axis_;
  ops::GradMode grad_mode_ = ops::GradMode::exact;
  Compat compat_ = Compat::none;
  StepSizeGuard guard_;
  float guarded_scale_ = 0;
  std::mutex first_batch_;
  std::atomic<bool> scale_ready_ = false;
  mutable std::mutex eps_;  // the next two
  mutable Seen eps_seen_;
  mutable double eps_value_ = 0;
};

/// These set an option of every layer inside a module, itself included.
void set_grad_mode(torch::nn::Module& module, ops::GradMode mode);
void set_compat(torch::nn::Module& module, Compat compat);
/// Throws a ValueError as the layer's, also where there is none.
void set_step_size_guard(torch::nn::Module& module, StepSizeGuard guard);

}  // namespace bie::layers
