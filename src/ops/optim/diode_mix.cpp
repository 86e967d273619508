// DiodeMix, one step of parameters: floats, codes and signs (docs/spec/optimizer.md).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>
#include <utility>
#include <vector>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/diode_mix.h"
#include "ops/checks.h"
#include "ops/dispatcher.h"
#include "ops/random.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

void check(const char* op, const DiodeMixStep& o) {
  const auto at_least_0 = [&](const char* name, double value) {
    TORCH_CHECK_VALUE(std::isfinite(value) && value >= 0, op, ": ", name, ": expected a number >= 0, got ", value);
  };
  at_least_0("lr", o.lr);
  at_least_0("eps", o.eps);
  at_least_0("weight_decay", o.weight_decay);
  for (const double beta : {o.beta1, o.beta2})
    TORCH_CHECK_VALUE(beta >= 0 && beta < 1, op, ": a beta: expected a number in [0, 1), got ", beta);
}

void check_moment(const char* op, const char* name, const at::Tensor& moment, const at::Tensor& param) {
  TORCH_CHECK_TYPE(moment.scalar_type() == at::kFloat || moment.scalar_type() == at::kBFloat16, op, ": ", name,
                   ": expected float32 or bfloat16, got ", moment.scalar_type());
  TORCH_CHECK_VALUE(moment.sizes() == param.sizes() && moment.strides() == param.strides(), op, ": ", name, " is ",
                    moment.sizes(), " with strides ", moment.strides(), ", the parameter ", param.sizes(), " with ",
                    param.strides());
}

/// Everything dense and in one order of memory, so that element i of each is the same one.
void check_state(const char* op, const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l,
                 const at::Tensor& s) {
  check_one_device(op, {param, grad, l, s});
  TORCH_CHECK_VALUE(param.is_non_overlapping_and_dense(), op, ": the parameter: expected a dense tensor, got ",
                    param.sizes(), " with strides ", param.strides());
  TORCH_CHECK_VALUE(grad.sizes() == param.sizes(), op, ": the parameter is ", param.sizes(), ", its gradient ",
                    grad.sizes());
  check_moment(op, "exp_avg_l", l, param);
  check_moment(op, "exp_avg_s", s, param);
  TORCH_CHECK_TYPE(l.scalar_type() == s.scalar_type(), op, ": one moment is ", l.scalar_type(), ", the other ",
                   s.scalar_type());
}

void check_integers(const char* op, const at::Tensor& param) {
  TORCH_CHECK_TYPE(param.scalar_type() == at::kChar, op, ": the parameter: expected int8, got ", param.scalar_type());
}

using Items = std::vector<DiodeMixItem>;

/// Checks common to all kinds of steps.
void check(const char* op, const Items& items, const DiodeMixStep& o) {
  check(op, o);
  for (const DiodeMixItem& item : items) {
    TORCH_CHECK_VALUE(item.step >= 1, op, ": step is ", item.step, ", steps count from 1");
    check_one_device(op, {items.front().param, item.param});
    check_state(op, item.param, item.grad, item.exp_avg_l, item.exp_avg_s);
  }
}

void float_steps(const char* op, const Items& items, const DiodeMixStep& o) {
  for (const DiodeMixItem& item : items) check_float(op, "the parameter", item.param);
  check(op, items, o);
  const at::NoGradGuard no_grad;
  backend_of(op, items.front().param).diode_mix.floats(op, items, o);
}

void code_steps(const char* op, const Items& items, const DiodeMixStep& o) {
  for (const DiodeMixItem& item : items) check_integers(op, item.param);
  check(op, items, o);
  for (const DiodeMixItem& item : items) {
    TORCH_CHECK_VALUE(item.bits == 4 || item.bits == 8, op, ": bits: expected 4 or 8, got ", item.bits);
    TORCH_CHECK_VALUE(item.scale_w.numel() == 1 && item.scale_w.scalar_type() == at::kFloat, op,
                      ": scale_w: expected one float32, got ", item.scale_w.sizes(), " of ",
                      item.scale_w.scalar_type());
  }
  const at::NoGradGuard no_grad;
  backend_of(op, items.front().param).diode_mix.codes(op, items, o);
}

void sign_steps(const char* op, const Items& items, const DiodeMixStep& o) {
  for (const DiodeMixItem& item : items) check_integers(op, item.param);
  check(op, items, o);
  const at::NoGradGuard no_grad;
  backend_of(op, items.front().param).diode_mix.signs(op, items, o);
}

at::Tensor first_moment_real(const at::Tensor& signs, at::ScalarType type, std::int64_t seed, std::int64_t stream) {
  const char* op = "diode_mix_first_moment";
  check_integers(op, signs);
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kBFloat16, op, ": a moment is float32 or bfloat16, not ", type);
  TORCH_CHECK_VALUE(signs.is_non_overlapping_and_dense(), op, ": the signs: expected a dense tensor, got strides ",
                    signs.strides());
  at::Tensor moment = at::empty_like(signs, signs.options().dtype(type).requires_grad(false));
  const Stream random(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(stream), 0);
  backend_of(op, signs).diode_mix.first_moment(op, signs, random.start(), moment);
  return moment;
}

at::Tensor first_moment_meta(const at::Tensor& signs, at::ScalarType type, std::int64_t, std::int64_t) {
  return at::empty_like(signs, signs.options().dtype(type).requires_grad(false));
}

void check_state_is_meta(const char* op, const at::Tensor& param, const at::Tensor& l, const at::Tensor& s) {
  check_meta(op, "the parameter", param);
  check_meta(op, "exp_avg_l", l);
  check_meta(op, "exp_avg_s", s);
}

void check_states_are_meta(const char* op, at::TensorList params, at::TensorList l, at::TensorList s) {
  for (std::size_t i = 0; i < params.size() && i < l.size() && i < s.size(); ++i)
    check_state_is_meta(op, params[i], l[i], s[i]);
}

// The operators as the dispatcher calls them.

using FloatSignature = void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                            double, double, double, double, double, bool, std::int64_t, std::int64_t);
using CodesSignature = void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, std::int64_t, bool, std::int64_t, double, double, double, double, double,
                            bool, std::int64_t, std::int64_t);
using SignsSignature = void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                            double, double, double, std::int64_t, std::int64_t);
using FirstMomentSignature = at::Tensor(const at::Tensor&, at::ScalarType, std::int64_t, std::int64_t);

using FloatManySignature = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::IntArrayRef, double,
                                double, double, double, double, bool, std::int64_t, at::IntArrayRef);
using CodesManySignature = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                                at::IntArrayRef, const c10::List<bool>&, at::IntArrayRef, double, double, double,
                                double, double, bool, std::int64_t, at::IntArrayRef);
using SignsManySignature = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::IntArrayRef, double,
                                double, double, std::int64_t, at::IntArrayRef);

void float_one(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
               std::int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay,
               bool correct_bias, std::int64_t seed, std::int64_t stream) {
  float_steps("diode_mix_float_", {{param, grad, l, s, step, stream}},
              {step, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, stream});
}

void codes_one(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
               const at::Tensor& scale_w, std::int64_t bits, bool renew_scale, std::int64_t step, double lr,
               double beta1, double beta2, double eps, double weight_decay, bool correct_bias, std::int64_t seed,
               std::int64_t stream) {
  code_steps("diode_mix_codes_", {{param, grad, l, s, step, stream, scale_w, bits, renew_scale}},
             {step, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, stream});
}

void signs_one(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s,
               std::int64_t step, double lr, double beta1, double beta2, std::int64_t seed, std::int64_t stream) {
  sign_steps("diode_mix_signs_", {{param, grad, l, s, step, stream}},
             {step, lr, beta1, beta2, 0, 0, false, seed, stream});
}

/// One item of each place in the lists; throws unless they are of one length.
Items items_of(const char* op, at::TensorList params, at::TensorList grads, at::TensorList l, at::TensorList s,
               at::IntArrayRef steps, at::IntArrayRef streams) {
  const std::size_t count = params.size();
  TORCH_CHECK_VALUE(count > 0, op, ": the list of parameters is empty");
  for (const std::size_t size : {grads.size(), l.size(), s.size(), steps.size(), streams.size()})
    TORCH_CHECK_VALUE(size == count, op, ": one list holds ", size, ", that of the parameters ", count);
  Items items;
  for (std::size_t i = 0; i < count; ++i) items.push_back({params[i], grads[i], l[i], s[i], steps[i], streams[i]});
  return items;
}

void float_many(at::TensorList params, at::TensorList grads, at::TensorList l, at::TensorList s, at::IntArrayRef steps,
                double lr, double beta1, double beta2, double eps, double weight_decay, bool correct_bias,
                std::int64_t seed, at::IntArrayRef streams) {
  const char* op = "diode_mix_float_many_";
  float_steps(op, items_of(op, params, grads, l, s, steps, streams),
              {1, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, 0});
}

void codes_many(at::TensorList params, at::TensorList grads, at::TensorList l, at::TensorList s, at::TensorList scale_w,
                at::IntArrayRef bits, const c10::List<bool>& renew_scale, at::IntArrayRef steps, double lr,
                double beta1, double beta2, double eps, double weight_decay, bool correct_bias, std::int64_t seed,
                at::IntArrayRef streams) {
  const char* op = "diode_mix_codes_many_";
  Items items = items_of(op, params, grads, l, s, steps, streams);
  for (const std::size_t size : {scale_w.size(), bits.size(), renew_scale.size()})
    TORCH_CHECK_VALUE(size == items.size(), op, ": one list holds ", size, ", that of the parameters ", items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].scale_w = scale_w[i];
    items[i].bits = bits[i];
    items[i].renew_scale = renew_scale.get(i);
  }
  code_steps(op, items, {1, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, 0});
}

void signs_many(at::TensorList params, at::TensorList grads, at::TensorList l, at::TensorList s, at::IntArrayRef steps,
                double lr, double beta1, double beta2, std::int64_t seed, at::IntArrayRef streams) {
  const char* op = "diode_mix_signs_many_";
  sign_steps(op, items_of(op, params, grads, l, s, steps, streams), {1, lr, beta1, beta2, 0, 0, false, seed, 0});
}

/// The lists that the dispatcher takes.
struct Lists {
  std::vector<at::Tensor> params, grads, l, s, scale_w;
  std::vector<std::int64_t> steps, streams, bits;
  c10::List<bool> renew_scale;

  explicit Lists(const Items& items) {
    for (const DiodeMixItem& item : items) {
      params.push_back(item.param);
      grads.push_back(item.grad);
      l.push_back(item.exp_avg_l);
      s.push_back(item.exp_avg_s);
      scale_w.push_back(item.scale_w);
      steps.push_back(item.step);
      streams.push_back(item.stream);
      bits.push_back(item.bits);
      renew_scale.push_back(item.renew_scale);
    }
  }
};

}  // namespace

void diode_mix_float_(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                      const at::Tensor& exp_avg_s, const DiodeMixStep& o) {
  static const auto op = find_op<FloatSignature>("bie::diode_mix_float_");
  op.call(param, grad, exp_avg_l, exp_avg_s, o.step, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.correct_bias,
          o.seed, o.stream);
}

void diode_mix_codes_(const at::Tensor& codes, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                      const at::Tensor& exp_avg_s, const at::Tensor& scale_w, std::int64_t bits, bool renew_scale,
                      const DiodeMixStep& o) {
  static const auto op = find_op<CodesSignature>("bie::diode_mix_codes_");
  op.call(codes, grad, exp_avg_l, exp_avg_s, scale_w, bits, renew_scale, o.step, o.lr, o.beta1, o.beta2, o.eps,
          o.weight_decay, o.correct_bias, o.seed, o.stream);
}

void diode_mix_signs_(const at::Tensor& signs, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                      const at::Tensor& exp_avg_s, const DiodeMixStep& o) {
  static const auto op = find_op<SignsSignature>("bie::diode_mix_signs_");
  op.call(signs, grad, exp_avg_l, exp_avg_s, o.step, o.lr, o.beta1, o.beta2, o.seed, o.stream);
}

void diode_mix_float_many_(const std::vector<DiodeMixItem>& items, const DiodeMixStep& o) {
  static const auto op = find_op<FloatManySignature>("bie::diode_mix_float_many_");
  if (items.empty()) return;
  const Lists a(items);
  op.call(a.params, a.grads, a.l, a.s, a.steps, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.correct_bias, o.seed,
          a.streams);
}

void diode_mix_codes_many_(const std::vector<DiodeMixItem>& items, const DiodeMixStep& o) {
  static const auto op = find_op<CodesManySignature>("bie::diode_mix_codes_many_");
  if (items.empty()) return;
  const Lists a(items);
  op.call(a.params, a.grads, a.l, a.s, a.scale_w, a.bits, a.renew_scale, a.steps, o.lr, o.beta1, o.beta2, o.eps,
          o.weight_decay, o.correct_bias, o.seed, a.streams);
}

void diode_mix_signs_many_(const std::vector<DiodeMixItem>& items, const DiodeMixStep& o) {
  static const auto op = find_op<SignsManySignature>("bie::diode_mix_signs_many_");
  if (items.empty()) return;
  const Lists a(items);
  op.call(a.params, a.grads, a.l, a.s, a.steps, o.lr, o.beta1, o.beta2, o.seed, a.streams);
}

at::Tensor diode_mix_first_moment(const at::Tensor& signs, at::ScalarType dtype, std::int64_t seed,
                                  std::int64_t stream) {
  static const auto op = find_op<FirstMomentSignature>("bie::diode_mix_first_moment");
  return op.call(signs, dtype, seed, stream);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("diode_mix_float_", float_one);
  m.impl("diode_mix_codes_", codes_one);
  m.impl("diode_mix_signs_", signs_one);
  m.impl("diode_mix_float_many_", float_many);
  m.impl("diode_mix_codes_many_", codes_many);
  m.impl("diode_mix_signs_many_", signs_many);
  m.impl("diode_mix_first_moment", first_moment_real);
}

// A step gives nothing back, so there is nothing to infer.
TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using bie::ops::check_state_is_meta;
  using bie::ops::check_states_are_meta;
  m.impl("diode_mix_float_", [](const at::Tensor& param, const at::Tensor&, const at::Tensor& l, const at::Tensor& s,
                                std::int64_t, double, double, double, double, double, bool, std::int64_t,
                                std::int64_t) { check_state_is_meta("diode_mix_float_", param, l, s); });
  m.impl("diode_mix_codes_", [](const at::Tensor& param, const at::Tensor&, const at::Tensor& l, const at::Tensor& s,
                                const at::Tensor& scale_w, std::int64_t, bool, std::int64_t, double, double, double,
                                double, double, bool, std::int64_t, std::int64_t) {
    check_state_is_meta("diode_mix_codes_", param, l, s);
    bie::ops::check_meta("diode_mix_codes_", "scale_w", scale_w);
  });
  m.impl("diode_mix_signs_",
         [](const at::Tensor& param, const at::Tensor&, const at::Tensor& l, const at::Tensor& s, std::int64_t, double,
            double, double, std::int64_t, std::int64_t) { check_state_is_meta("diode_mix_signs_", param, l, s); });
  m.impl("diode_mix_float_many_",
         [](at::TensorList params, at::TensorList, at::TensorList l, at::TensorList s, at::IntArrayRef, double, double,
            double, double, double, bool, std::int64_t,
            at::IntArrayRef) { check_states_are_meta("diode_mix_float_many_", params, l, s); });
  m.impl("diode_mix_codes_many_", [](at::TensorList params, at::TensorList, at::TensorList l, at::TensorList s,
                                     at::TensorList scale_w, at::IntArrayRef, const c10::List<bool>&, at::IntArrayRef,
                                     double, double, double, double, double, bool, std::int64_t, at::IntArrayRef) {
    check_states_are_meta("diode_mix_codes_many_", params, l, s);
    for (const at::Tensor& scale : scale_w) bie::ops::check_meta("diode_mix_codes_many_", "scale_w", scale);
  });
  m.impl("diode_mix_signs_many_",
         [](at::TensorList params, at::TensorList, at::TensorList l, at::TensorList s, at::IntArrayRef, double, double,
            double, std::int64_t, at::IntArrayRef) { check_states_are_meta("diode_mix_signs_many_", params, l, s); });
  m.impl("diode_mix_first_moment", bie::ops::first_moment_meta);
}
