// diode_mix_places_many_: checks of steps of codes whose place between two codes is kept (docs/spec/optimizer.md).
#include "bie/kernels/code_step.h"

#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/optim/diode_mix_step.h"
#include "ops/random.h"
#include "ops/registration.h"
#include "ops/weight_only/coded_weight.h"
#include "ops/weight_only/words.h"

namespace bie::ops {
namespace {

constexpr const char* op = "diode_mix_places_many_";

using OptTensors = std::optional<std::vector<at::Tensor>>;

/// A weight with its state, and the numbers that are its own.
struct Item {
  at::Tensor qweight, scales;
  OptTensor zeros;
  at::Tensor grad, l, m;
  OptTensor largest, rest, scale_moments;
  std::int64_t bits, top, group_size, step, stream;
};

/// The numbers of all weights of a call.
struct Numbers {
  double lr, scale_lr, beta1, beta2, eps, weight_decay;
  bool correct_bias;
  std::int64_t seed;
};

void check_tensor(const char* name, const OptTensor& t, c10::IntArrayRef sizes, at::ScalarType type) {
  if (!t.has_value()) return;
  TORCH_CHECK_TYPE(t->scalar_type() == type, op, ": ", name, ": expected ", type, ", got ", t->scalar_type());
  TORCH_CHECK_VALUE(t->sizes() == sizes && t->is_contiguous(), op, ": ", name, ": expected a dense tensor of ", sizes,
                    ", got ", t->sizes(), " with strides ", t->strides());
}

void check_numbers(const Numbers& o) {
  const auto check = [](const char* name, double value, double most) {
    TORCH_CHECK_VALUE(std::isfinite(value) && value >= 0 && value < most, op, ": ", name, ": expected a number in [0, ",
                      most, "), got ", value);
  };
  for (const double beta : {o.beta1, o.beta2}) check("a beta", beta, 1);
  constexpr double any = 1e300;
  check("lr", o.lr, any);
  check("scale_lr", o.scale_lr, any);
  check("eps", o.eps, any);
  check("weight_decay", o.weight_decay, any);
}

/// Throws what is wrong with a weight or its state, of which `w` is the weight.
void check_item(const Item& item, const CodedWeight& w, double scale_lr) {
  const std::int64_t k = item.grad.size(0), n = item.grad.size(1);
  const bool small = item.largest.has_value();
  check_tensor("exp_avg_l", item.l, item.grad.sizes(), small ? at::kChar : at::kFloat);
  check_tensor("exp_avg_s", item.m, item.grad.sizes(), small ? at::kByte : at::kFloat);
  check_tensor("largest", item.largest, {2, k, kernels::moment_blocks(n)}, at::kFloat);
  check_tensor("rest", item.rest, item.grad.sizes(), at::kChar);
  check_tensor("scale_moments", item.scale_moments, {2, w.groups, n}, at::kFloat);
  TORCH_CHECK_VALUE(item.top == -1 || (item.top >= 1 && item.top < std::int64_t{1} << item.bits), op,
                    ": top: expected 1 ... ", (1 << item.bits) - 1, ", got ", item.top);
  TORCH_CHECK_VALUE(item.step >= 1, op, ": step: expected 1 or more, got ", item.step);
  TORCH_CHECK_VALUE(scale_lr == 0 || item.scale_moments.has_value(), op, ": scale_lr is ", scale_lr,
                    ", and there are no scale_moments");
  TORCH_CHECK_VALUE(
      item.qweight.is_contiguous() && item.scales.is_contiguous() && (!item.zeros || item.zeros->is_contiguous()), op,
      ": qweight, scales and zeros: expected dense tensors");
  TORCH_CHECK_VALUE(
      !item.zeros || w.offset == kernels::Offset::zero || item.zeros->scalar_type() == item.scales.scalar_type(), op,
      ": zeros: expected ", item.scales.scalar_type(), ", as the scales are, got ", item.zeros->scalar_type());
  check_one_device(op, {item.qweight, item.scales, value_or_none(item.zeros), item.grad, item.l, item.m,
                        value_or_none(item.largest), value_or_none(item.rest), value_or_none(item.scale_moments)});
}

template <class T>
T* data(const OptTensor& t) {
  return t.has_value() ? static_cast<T*>(t->mutable_data_ptr()) : nullptr;
}

/// The kernel's step of a weight; `kept` gets the tensors that it reads besides the item's own.
kernels::CodeStep step_of(const Item& item, const Numbers& o, std::vector<at::Tensor>& kept) {
  check_float(op, "grad", item.grad);
  TORCH_CHECK_VALUE(item.grad.dim() == 2 && item.qweight.dim() == 2 && item.grad.size(1) == item.qweight.size(1), op,
                    ": grad: expected [k, n] for a qweight of ", item.qweight.sizes(), ", got ", item.grad.sizes());
  const std::int64_t k = item.grad.size(0), n = item.grad.size(1);
  const CodedWeight w =
      coded_weight(op, {item.qweight, item.scales, item.zeros, item.bits, item.group_size, {}, {}, {}}, k);
  check_item(item, w, o.scale_lr);
  const at::Tensor dense = item.grad.contiguous();
  kept.insert(kept.end(), {dense, w.zeros});
  const DiodeMixStep adam{item.step,      o.lr,           o.beta1, o.beta2,    o.eps,
                          o.weight_decay, o.correct_bias, o.seed,  item.stream};
  DiodeMixStep of_scales = adam;
  of_scales.lr = o.scale_lr;
  const float scale_rate = adam_rate(of_scales, item.step);
  const Stream random(static_cast<std::uint64_t>(o.seed), static_cast<std::uint64_t>(item.stream),
                      static_cast<std::uint64_t>(item.step));
  float* const scale_l = scale_rate > 0 ? data<float>(item.scale_moments) : nullptr;
  return {k,
          n,
          item.group_size < 1 ? std::max<std::int64_t>(1, k) : item.group_size,
          static_cast<int>(item.bits),
          static_cast<int>(item.top < 0 ? (1 << item.bits) - 1 : item.top),
          static_cast<std::uint32_t*>(item.qweight.mutable_data_ptr()),
          data<std::int8_t>(item.rest),
          item.scales.mutable_data_ptr(),
          float_dtype(item.scales),
          w.offset,
          w.zeros.defined() ? w.zeros.mutable_data_ptr() : nullptr,
          dense.const_data_ptr(),
          float_dtype(dense),
          item.l.mutable_data_ptr(),
          item.m.mutable_data_ptr(),
          data<float>(item.largest),
          scale_l,
          scale_l == nullptr ? nullptr : scale_l + w.groups * n,
          adam_numbers(adam),
          adam_rate(adam, item.step),
          scale_rate,
          random.start()};
}

void step_all(const std::vector<Item>& items, const Numbers& o) {
  check_numbers(o);
  std::vector<kernels::CodeStep> steps;
  std::vector<at::Tensor> kept;
  for (const Item& item : items) {
    check_one_device(op, {items.front().qweight, item.qweight});
    steps.push_back(step_of(item, o, kept));
  }
  backend_of(op, items.front().qweight).weight_only.step_places(op, items.front().qweight, steps);
  for (std::size_t i = 0; i < items.size(); ++i) {
    bump_version(items[i].qweight);
    if (steps[i].scale_l == nullptr) continue;
    bump_version(items[i].scales);
    if (steps[i].offset == kernels::Offset::value) bump_version(*items[i].zeros);
  }
}

void step_many(at::TensorList qweights, at::TensorList scales, const OptTensors& zeros, at::TensorList grads,
               at::TensorList l, at::TensorList m, const OptTensors& largest, const OptTensors& rest,
               const OptTensors& scale_moments, at::IntArrayRef bits, at::IntArrayRef tops, at::IntArrayRef group_sizes,
               at::IntArrayRef steps, double lr, double scale_lr, double beta1, double beta2, double eps,
               double weight_decay, bool correct_bias, std::int64_t seed, at::IntArrayRef streams) {
  const std::size_t count = qweights.size();
  TORCH_CHECK_VALUE(count > 0, op, ": the list of weights is empty");
  const auto check = [&](std::size_t size) {
    TORCH_CHECK_VALUE(size == count, op, ": one list holds ", size, ", that of the weights ", count);
  };
  for (const at::TensorList list : {scales, grads, l, m}) check(list.size());
  for (const at::IntArrayRef list : {bits, tops, group_sizes, steps, streams}) check(list.size());
  for (const OptTensors* list : {&zeros, &largest, &rest, &scale_moments})
    if (list->has_value()) check((*list)->size());
  const auto at = [](const OptTensors& list, std::size_t i) {
    return list.has_value() ? OptTensor((*list)[i]) : OptTensor();
  };
  std::vector<Item> items;
  for (std::size_t i = 0; i < count; ++i)
    items.push_back({qweights[i], scales[i], at(zeros, i), grads[i], l[i], m[i], at(largest, i), at(rest, i),
                     at(scale_moments, i), bits[i], tops[i], group_sizes[i], steps[i], streams[i]});
  step_all(items, {lr, scale_lr, beta1, beta2, eps, weight_decay, correct_bias, seed});
}

/// Every tensor of a call on meta tensors must be one.
void check_all_meta(at::TensorList given) {
  for (const at::Tensor& t : given) check_meta(op, "a tensor", t);
}

void many_meta(at::TensorList qweights, at::TensorList scales, const OptTensors& zeros, at::TensorList,
               at::TensorList l, at::TensorList m, const OptTensors& largest, const OptTensors& rest,
               const OptTensors& scale_moments, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
               double, double, double, double, double, double, bool, std::int64_t, at::IntArrayRef) {
  for (const at::TensorList list : {qweights, scales, l, m}) check_all_meta(list);
  for (const OptTensors* list : {&zeros, &largest, &rest, &scale_moments})
    if (list->has_value()) check_all_meta(**list);
}

}  // namespace
}  // namespace bie::ops

BIE_OPERATORS(m) { m.impl("diode_mix_places_many_", bie::ops::step_many); }

TORCH_LIBRARY_IMPL(bie, Meta, m) { m.impl("diode_mix_places_many_", bie::ops::many_meta); }
