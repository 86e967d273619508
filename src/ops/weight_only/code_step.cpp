// diode_mix_places_: checks of a step of codes whose place between two codes is kept (docs/spec/optimizer.md).
#include "bie/kernels/code_step.h"

#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/optim/diode_mix_step.h"
#include "ops/random.h"
#include "ops/registration.h"
#include "ops/weight_only/coded_weight.h"
#include "ops/weight_only/words.h"

namespace bie::ops {
namespace {

constexpr const char* op = "diode_mix_places_";

void check_tensor(const char* name, const OptTensor& t, c10::IntArrayRef sizes, at::ScalarType type) {
  if (!t.has_value()) return;
  TORCH_CHECK_TYPE(t->scalar_type() == type, op, ": ", name, ": expected ", type, ", got ", t->scalar_type());
  TORCH_CHECK_VALUE(t->sizes() == sizes && t->is_contiguous(), op, ": ", name, ": expected a dense tensor of ", sizes,
                    ", got ", t->sizes(), " with strides ", t->strides());
}

void check_number(const char* name, double value, double most) {
  TORCH_CHECK_VALUE(std::isfinite(value) && value >= 0 && value < most, op, ": ", name, ": expected a number in [0, ",
                    most, "), got ", value);
}

template <class T>
T* data(const OptTensor& t) {
  return t.has_value() ? static_cast<T*>(t->mutable_data_ptr()) : nullptr;
}

void step_real(const at::Tensor& qweight, const at::Tensor& scales, const OptTensor& zeros, const at::Tensor& grad,
               const at::Tensor& l, const at::Tensor& m, const OptTensor& largest, const OptTensor& rest,
               const OptTensor& scale_moments, std::int64_t bits, std::int64_t top, std::int64_t group_size,
               std::int64_t number, double lr, double scale_lr, double beta1, double beta2, double eps,
               double weight_decay, bool correct_bias, std::int64_t seed, std::int64_t stream) {
  check_float(op, "grad", grad);
  TORCH_CHECK_VALUE(grad.dim() == 2 && qweight.dim() == 2 && grad.size(1) == qweight.size(1), op,
                    ": grad: expected [k, n] for a qweight of ", qweight.sizes(), ", got ", grad.sizes());
  const std::int64_t k = grad.size(0), n = grad.size(1);
  const CodedWeight w = coded_weight(op, {qweight, scales, zeros, bits, group_size, {}, {}, {}}, k);
  const bool small = largest.has_value();
  check_tensor("exp_avg_l", l, grad.sizes(), small ? at::kChar : at::kFloat);
  check_tensor("exp_avg_s", m, grad.sizes(), small ? at::kByte : at::kFloat);
  check_tensor("largest", largest, {2, k, kernels::moment_blocks(n)}, at::kFloat);
  check_tensor("rest", rest, grad.sizes(), at::kChar);
  check_tensor("scale_moments", scale_moments, {2, w.groups, n}, at::kFloat);
  TORCH_CHECK_VALUE(top == -1 || (top >= 1 && top < std::int64_t{1} << bits), op, ": top: expected 1 ... ",
                    (1 << bits) - 1, ", got ", top);
  TORCH_CHECK_VALUE(number >= 1, op, ": step: expected 1 or more, got ", number);
  for (const double beta : {beta1, beta2}) check_number("a beta", beta, 1);
  constexpr double any = 1e300;
  check_number("lr", lr, any);
  check_number("scale_lr", scale_lr, any);
  check_number("eps", eps, any);
  check_number("weight_decay", weight_decay, any);
  TORCH_CHECK_VALUE(scale_lr == 0 || scale_moments.has_value(), op, ": scale_lr is ", scale_lr,
                    ", and there are no scale_moments");
  TORCH_CHECK_VALUE(qweight.is_contiguous() && scales.is_contiguous() && (!zeros.has_value() || zeros->is_contiguous()),
                    op, ": qweight, scales and zeros: expected dense tensors");
  TORCH_CHECK_VALUE(
      !zeros.has_value() || w.offset == kernels::Offset::zero || zeros->scalar_type() == scales.scalar_type(), op,
      ": zeros: expected ", scales.scalar_type(), ", as the scales are, got ", zeros->scalar_type());
  check_one_device(op, {qweight, scales, value_or_none(zeros), grad, l, m, value_or_none(largest), value_or_none(rest),
                        value_or_none(scale_moments)});
  const at::Tensor dense = grad.contiguous();
  const DiodeMixStep o{number, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, stream};
  DiodeMixStep of_scales = o;
  of_scales.lr = scale_lr;
  const float scale_rate = adam_rate(of_scales, number);
  const Stream random(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(stream),
                      static_cast<std::uint64_t>(number));
  float* const scale_l = scale_rate > 0 ? data<float>(scale_moments) : nullptr;
  backend_of(op, qweight)
      .weight_only.step_places(op, qweight,
                               {k,
                                n,
                                group_size < 1 ? std::max<std::int64_t>(1, k) : group_size,
                                static_cast<int>(bits),
                                static_cast<int>(top < 0 ? (1 << bits) - 1 : top),
                                static_cast<std::uint32_t*>(qweight.mutable_data_ptr()),
                                data<std::int8_t>(rest),
                                scales.mutable_data_ptr(),
                                float_dtype(scales),
                                w.offset,
                                w.zeros.defined() ? w.zeros.mutable_data_ptr() : nullptr,
                                dense.const_data_ptr(),
                                float_dtype(dense),
                                l.mutable_data_ptr(),
                                m.mutable_data_ptr(),
                                data<float>(largest),
                                scale_l,
                                scale_l == nullptr ? nullptr : scale_l + w.groups * n,
                                adam_numbers(o),
                                adam_rate(o, number),
                                scale_rate,
                                random.start()});
  bump_version(qweight);
  if (scale_l == nullptr) return;
  bump_version(scales);
  if (w.offset == kernels::Offset::value) bump_version(*zeros);
}

void step_meta(const at::Tensor& qweight, const at::Tensor& scales, const OptTensor& zeros, const at::Tensor&,
               const at::Tensor& l, const at::Tensor& m, const OptTensor& largest, const OptTensor& rest,
               const OptTensor& scale_moments, std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, double,
               double, double, double, double, bool, std::int64_t, std::int64_t) {
  check_meta(op, "qweight", qweight);
  check_meta(op, "scales", scales);
  check_meta(op, "exp_avg_l", l);
  check_meta(op, "exp_avg_s", m);
  const auto check = [&](const char* name, const OptTensor& t) {
    if (t.has_value()) check_meta(op, name, *t);
  };
  check("zeros", zeros);
  check("largest", largest);
  check("rest", rest);
  check("scale_moments", scale_moments);
}

}  // namespace
}  // namespace bie::ops

BIE_OPERATORS(m) { m.impl("diode_mix_places_", bie::ops::step_real); }

TORCH_LIBRARY_IMPL(bie, Meta, m) { m.impl("diode_mix_places_", bie::ops::step_meta); }
