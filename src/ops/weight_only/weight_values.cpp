// The values of a weight of packed codes: opened, packed, and moved by a step of DiodeMix (docs/spec/weight-only.md).
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/random.h"
#include "ops/registration.h"
#include "ops/weight_only/coded_weight.h"
#include "ops/weight_only/words.h"

namespace bie::ops {
namespace {

using OptInts = at::OptionalIntArrayRef;

at::ScalarType dtype_of(const char* op, const WeightArgs& a, std::optional<at::ScalarType> dtype) {
  const at::ScalarType type = dtype.value_or(a.scales.scalar_type());
  TORCH_CHECK_TYPE(is_float_type(type), op, ": dtype: expected float32, bfloat16 or float16, got ", type);
  return type;
}

at::Tensor open_real(const at::Tensor& qweight, const at::Tensor& scales, const OptTensor& zeros,
                     std::int64_t in_features, std::int64_t bits, std::int64_t group_size, const OptTensor& g_idx,
                     const OptTensor& q_perm, OptInts bit_rows, std::optional<at::ScalarType> dtype) {
  const char* op = "weight_only_open";
  const WeightArgs a{qweight, scales, zeros, bits, group_size, g_idx, q_perm, bit_rows};
  const CodedWeight w = coded_weight(op, a, in_features);
  return backend_of(op, qweight).weight_only.open(op, w, dtype_of(op, a, dtype));
}

at::Tensor open_meta(const at::Tensor& qweight, const at::Tensor& scales, const OptTensor& zeros,
                     std::int64_t in_features, std::int64_t bits, std::int64_t group_size, const OptTensor& g_idx,
                     const OptTensor& q_perm, OptInts bit_rows, std::optional<at::ScalarType> dtype) {
  const char* op = "weight_only_open";
  const WeightArgs a{qweight, scales, zeros, bits, group_size, g_idx, q_perm, bit_rows};
  check_meta(op, "scales", scales);
  check_weight_args(op, a, in_features);
  return at::empty_symint({in_features, qweight.sym_size(1)}, scales.options().dtype(dtype_of(op, a, dtype)));
}

std::int64_t words_for(std::int64_t k, std::int64_t bits, OptInts bit_rows) {
  if (!bit_rows.has_value()) return (k * bits + 31) / 32;
  std::int64_t words = 0;
  for (std::size_t i = 0; i + 1 < bit_rows->size(); i += 2)
    words += kernels::run_words(static_cast<int>((*bit_rows)[i]), (*bit_rows)[i + 1]);
  return words;
}

/// Allocates the words for values; throws if they are not a matrix.
at::Tensor words_like(const char* op, const at::Tensor& values, std::int64_t bits, OptInts bit_rows) {
  check_float(op, "values", values);
  TORCH_CHECK_VALUE(values.dim() == 2, op, ": values: expected [k, n], got ", values.sym_sizes());
  TORCH_CHECK_VALUE(bits >= 0 && bits <= 8, op, ": bits: expected 1, 2, 3, 4, 5, 6 or 8, got ", bits);
  return at::empty_symint({words_for(fixed_size(values, 0), bits, bit_rows), values.sym_size(1)},
                          values.options().dtype(at::kInt).requires_grad(false));
}

at::Tensor pack_real(const at::Tensor& values, const at::Tensor& scales, const OptTensor& zeros, std::int64_t bits,
                     std::int64_t group_size, const OptTensor& g_idx, const OptTensor& q_perm, OptInts bit_rows,
                     bool at_random, std::int64_t step, std::int64_t seed, std::int64_t stream) {
  const char* op = "weight_only_pack";
  const at::Tensor words = words_like(op, values, bits, bit_rows);
  const CodedWeight w =
      coded_weight(op, {words, scales, zeros, bits, group_size, g_idx, q_perm, bit_rows}, values.size(0));
  const Stream random(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(stream),
                      static_cast<std::uint64_t>(step));
  check_one_device(op, {values, scales});
  return backend_of(op, values).weight_only.pack(op, w, values.to(at::kFloat).contiguous(), at_random, random.start());
}

at::Tensor pack_meta(const at::Tensor& values, const at::Tensor& scales, const OptTensor& zeros, std::int64_t bits,
                     std::int64_t group_size, const OptTensor& g_idx, const OptTensor& q_perm, OptInts bit_rows, bool,
                     std::int64_t, std::int64_t, std::int64_t) {
  const char* op = "weight_only_pack";
  check_meta(op, "values", values);
  at::Tensor words = words_like(op, values, bits, bit_rows);
  check_weight_args(op, {words, scales, zeros, bits, group_size, g_idx, q_perm, bit_rows}, fixed_size(values, 0));
  return words;
}

void check_state(const char* op, const char* name, const OptTensor& t, const at::Tensor& grad, bool takes_float) {
  if (!t.has_value()) return;
  const at::ScalarType type = t->scalar_type();
  TORCH_CHECK_TYPE(type == at::kBFloat16 || (takes_float && type == at::kFloat), op, ": ", name, ": expected ",
                   takes_float ? "float32 or bfloat16" : "bfloat16", ", got ", type);
  TORCH_CHECK_VALUE(t->sizes() == grad.sizes() && t->is_contiguous(), op, ": ", name, ": expected a dense tensor of ",
                    grad.sizes(), ", got ", t->sizes(), " with strides ", t->strides());
}

void step_real(const at::Tensor& qweight, const at::Tensor& scales, const OptTensor& zeros, const at::Tensor& grad,
               const OptTensor& l, const OptTensor& s, const OptTensor& rest, std::int64_t bits,
               std::int64_t group_size, const OptTensor& g_idx, const OptTensor& q_perm, OptInts bit_rows,
               std::int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay,
               bool correct_bias, bool moves_zeros, std::int64_t seed, std::int64_t stream) {
  const char* op = "diode_mix_weight_only_";
  check_float(op, "grad", grad);
  TORCH_CHECK_VALUE(grad.dim() == 2 && grad.size(1) == qweight.size(-1), op,
                    ": grad: expected [k, n] for a qweight of ", qweight.sizes(), ", got ", grad.sizes());
  TORCH_CHECK_VALUE(l.has_value() == s.has_value(), op, ": exp_avg_l and exp_avg_s belong together, one is missing");
  check_state(op, "exp_avg_l", l, grad, true);
  check_state(op, "exp_avg_s", s, grad, true);
  TORCH_CHECK_TYPE(!l.has_value() || l->scalar_type() == s->scalar_type(), op,
                   ": exp_avg_l and exp_avg_s are of two dtypes");
  check_state(op, "rest", rest, grad, false);
  TORCH_CHECK_VALUE(step >= 1, op, ": step: expected 1 or more, got ", step);
  TORCH_CHECK_VALUE(qweight.is_contiguous(), op, ": qweight is not dense");
  TORCH_CHECK_VALUE(!zeros.has_value() || zeros->is_contiguous(), op, ": zeros are not dense");
  TORCH_CHECK_VALUE(!moves_zeros || !zeros.has_value() || zeros->scalar_type() == at::kInt ||
                        zeros->scalar_type() == scales.scalar_type(),
                    op, ": zeros that move: expected ", scales.scalar_type(), ", as the scales are, got ",
                    zeros->scalar_type());
  const CodedWeight w =
      coded_weight(op, {qweight, scales, zeros, bits, group_size, g_idx, q_perm, bit_rows}, grad.size(0));
  check_one_device(op, {qweight, grad, value_or_none(l), value_or_none(s), value_or_none(rest)});
  backend_of(op, qweight)
      .weight_only.step(op, w, grad.contiguous(), value_or_none(l), value_or_none(s), value_or_none(rest),
                        {step, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, stream}, moves_zeros);
  if (moves_zeros && w.offset == kernels::Offset::zero) zeros->copy_(packed_words(w.zeros - 1, bits, /*dim=*/1));
  bump_version(qweight);
  if (moves_zeros && w.offset == kernels::Offset::value) bump_version(*zeros);
}

void step_meta(const at::Tensor& qweight, const at::Tensor&, const OptTensor& zeros, const at::Tensor&,
               const OptTensor& l, const OptTensor& s, const OptTensor& rest, std::int64_t, std::int64_t,
               const OptTensor&, const OptTensor&, OptInts, std::int64_t, double, double, double, double, double, bool,
               bool, std::int64_t, std::int64_t) {
  const char* op = "diode_mix_weight_only_";
  check_meta(op, "qweight", qweight);
  const auto check = [&](const char* name, const OptTensor& t) {
    if (t.has_value()) check_meta(op, name, *t);
  };
  check("zeros", zeros);
  check("exp_avg_l", l);
  check("exp_avg_s", s);
  check("rest", rest);
}

}  // namespace

at::Tensor weight_only_open(const CodedWeightTensors& w, std::int64_t in_features,
                            std::optional<at::ScalarType> dtype) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const at::Tensor&, const OptTensor&, std::int64_t, std::int64_t,
                         std::int64_t, const OptTensor&, const OptTensor&, OptInts, std::optional<at::ScalarType>)>(
          "bie::weight_only_open");
  return op.call(w.qweight, w.scales, none_if_undefined(w.zeros), in_features, w.bits, w.group_size,
                 none_if_undefined(w.g_idx), none_if_undefined(w.q_perm), bit_rows_of(w.bit_rows), dtype);
}

at::Tensor weight_only_pack(const at::Tensor& values, const CodedWeightTensors& w) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const at::Tensor&, const OptTensor&, std::int64_t, std::int64_t,
                         const OptTensor&, const OptTensor&, OptInts, bool, std::int64_t, std::int64_t, std::int64_t)>(
          "bie::weight_only_pack");
  return op.call(values, w.scales, none_if_undefined(w.zeros), w.bits, w.group_size, none_if_undefined(w.g_idx),
                 none_if_undefined(w.q_perm), bit_rows_of(w.bit_rows), /*at_random=*/false, 0, 0, 0);
}

void diode_mix_weight_only_(const CodedWeightTensors& w, const at::Tensor& grad, const at::Tensor& exp_avg_l,
                            const at::Tensor& exp_avg_s, const at::Tensor& rest, bool moves_zeros,
                            const DiodeMixStep& o) {
  static const auto op = find_op<void(
      const at::Tensor&, const at::Tensor&, const OptTensor&, const at::Tensor&, const OptTensor&, const OptTensor&,
      const OptTensor&, std::int64_t, std::int64_t, const OptTensor&, const OptTensor&, OptInts, std::int64_t, double,
      double, double, double, double, bool, bool, std::int64_t, std::int64_t)>("bie::diode_mix_weight_only_");
  op.call(w.qweight, w.scales, none_if_undefined(w.zeros), grad, none_if_undefined(exp_avg_l),
          none_if_undefined(exp_avg_s), none_if_undefined(rest), w.bits, w.group_size, none_if_undefined(w.g_idx),
          none_if_undefined(w.q_perm), bit_rows_of(w.bit_rows), o.step, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay,
          o.correct_bias, moves_zeros, o.seed, o.stream);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("weight_only_open", open_real);
  m.impl("weight_only_pack", pack_real);
  m.impl("diode_mix_weight_only_", step_real);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("weight_only_open", open_meta);
  m.impl("weight_only_pack", pack_meta);
  m.impl("diode_mix_weight_only_", step_meta);
}
