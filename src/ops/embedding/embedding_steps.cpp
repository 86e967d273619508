// DiodeMix's step on the rows of a table that a batch used: of signs (docs/spec/optimizer.md#binary-embeddings) and of
// codes (docs/spec/optimizer.md#weight-only-weights).
#include <ATen/ops/_unique2.h>
#include <ATen/ops/index_select.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/embeddings.h"
#include "ops/checks.h"
#include "ops/dispatcher.h"
#include "ops/embedding/table.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

void check_rows(const char* op, const at::Tensor& rows) {
  TORCH_CHECK_TYPE(rows.scalar_type() == at::kLong, op, ": rows: expected int64, got ", rows.scalar_type());
  TORCH_CHECK_VALUE(rows.dim() == 1, op, ": rows: expected one axis, got ", rows.sizes());
}

at::Tensor distinct_rows(const char* op, const at::Tensor& rows, std::int64_t count) {
  const at::Tensor used = flat_indices(op, rows, count);
  if (used.is_cpu())
    TORCH_CHECK_VALUE(std::get<0>(at::_unique2(used)).numel() == used.numel(), op, ": a row is named twice");
  return used;
}

void step_signs(const at::Tensor& weight, const at::Tensor& rows, const at::Tensor& votes, const at::Tensor& moment,
                std::int64_t dim, std::int64_t step, double lr, double beta2, std::int64_t seed, std::int64_t stream) {
  const char* op = "diode_mix_embedding_";
  check_table(op, weight, dim);
  check_rows(op, rows);
  const bool packed_votes = votes.scalar_type() == at::kByte;
  if (!packed_votes) check_float(op, "votes", votes);
  TORCH_CHECK_VALUE(
      votes.dim() == 2 && votes.size(0) == rows.numel() && votes.size(1) == (packed_votes ? (dim + 7) / 8 : dim), op,
      ": votes: expected [", rows.numel(), ", ", packed_votes ? (dim + 7) / 8 : dim, "], got ", votes.sizes());
  TORCH_CHECK_TYPE(moment.scalar_type() == at::kFloat || moment.scalar_type() == at::kBFloat16, op,
                   ": exp_avg_s: expected float32 or bfloat16, got ", moment.scalar_type());
  TORCH_CHECK_VALUE(moment.dim() == 2 && moment.size(0) == weight.size(0) && moment.size(1) >= dim, op,
                    ": exp_avg_s: expected [", weight.size(0), ", ", dim, "], got ", moment.sizes());
  TORCH_CHECK_VALUE(weight.is_contiguous() && moment.is_contiguous(), op, ": the weight and exp_avg_s are to be dense");
  check_one_device(op, {weight, rows, votes, moment});
  const at::Tensor used = distinct_rows(op, rows, weight.size(0));
  const at::Tensor values = packed_votes ? unpack_signs(votes, dim) : votes;
  backend_of(op, weight)
      .embeddings.step(op, weight, used, values.to(at::kFloat).contiguous(), moment,
                       {step, lr, 0, beta2, 0, 0, false, seed, stream});
  bump_version(weight);
  bump_version(moment);
}

void step_signs_meta(const at::Tensor& weight, const at::Tensor&, const at::Tensor&, const at::Tensor& moment,
                     std::int64_t, std::int64_t, double, double, std::int64_t, std::int64_t) {
  check_meta("diode_mix_embedding_", "the weight", weight);
  check_meta("diode_mix_embedding_", "exp_avg_s", moment);
}

void step_codes(const at::Tensor& qweight, const at::Tensor& scales, const OptTensor& zeros, const at::Tensor& rows,
                const at::Tensor& grad, const at::Tensor& l, const at::Tensor& s, std::int64_t bits,
                std::int64_t group_size, std::int64_t step, double lr, double beta1, double beta2, double eps,
                double weight_decay, bool correct_bias, bool moves_zeros, std::int64_t seed, std::int64_t stream) {
  const char* op = "diode_mix_weight_only_rows_";
  check_rows(op, rows);
  check_float(op, "grad", grad);
  TORCH_CHECK_VALUE(qweight.dim() == 2 && grad.dim() == 2 && grad.size(0) == rows.numel(), op, ": grad: expected [",
                    rows.numel(), ", dim], got ", grad.sizes());
  const std::vector<std::int64_t> sizes{qweight.size(0), grad.size(1)};
  const at::IntArrayRef table(sizes);
  for (const auto& [name, moment] : {std::pair{"exp_avg_l", l}, std::pair{"exp_avg_s", s}})
    TORCH_CHECK_VALUE(moment.sizes() == table, op, ": ", name, ": expected ", table, ", got ", moment.sizes());
  TORCH_CHECK_VALUE(scales.dim() == 2 && scales.size(0) == table[0] && (!zeros || zeros->sizes() == scales.sizes()), op,
                    ": scales: expected [", table[0], ", groups] and zeros like them, got ", scales.sizes());
  check_one_device(op, {qweight, scales, value_or_none(zeros), rows, grad, l, s});
  const at::Tensor used = distinct_rows(op, rows, table[0]);
  if (used.numel() == 0) return;
  // Transposed to columns, the layout of a linear layer's words.
  const auto columns = [&](const at::Tensor& t) { return t.index_select(0, used).t().contiguous(); };
  const auto back = [&](at::Tensor to, const at::Tensor& from) { to.index_copy_(0, used, from.t()); };
  CodedWeightTensors weight;
  weight.qweight = columns(qweight);
  weight.scales = columns(scales);
  if (zeros.has_value()) weight.zeros = columns(*zeros);
  weight.bits = bits;
  weight.group_size = group_size;
  const at::Tensor own_l = columns(l), own_s = columns(s);
  diode_mix_weight_only_(weight, grad.t().contiguous(), own_l, own_s, {}, moves_zeros,
                         {step, lr, beta1, beta2, eps, weight_decay, correct_bias, seed, stream});
  back(qweight, weight.qweight);
  back(l, own_l);
  back(s, own_s);
  if (moves_zeros && zeros.has_value()) back(*zeros, weight.zeros);
}

void step_codes_meta(const at::Tensor& qweight, const at::Tensor&, const OptTensor& zeros, const at::Tensor&,
                     const at::Tensor&, const at::Tensor& l, const at::Tensor& s, std::int64_t, std::int64_t,
                     std::int64_t, double, double, double, double, double, bool, bool, std::int64_t, std::int64_t) {
  const char* op = "diode_mix_weight_only_rows_";
  check_meta(op, "qweight", qweight);
  check_meta(op, "exp_avg_l", l);
  check_meta(op, "exp_avg_s", s);
  if (zeros.has_value()) check_meta(op, "zeros", *zeros);
}

}  // namespace

void diode_mix_embedding_(const at::Tensor& weight, const at::Tensor& rows, const at::Tensor& votes,
                          const at::Tensor& exp_avg_s, std::int64_t embedding_dim, const DiodeMixStep& o) {
  static const auto op =
      find_op<void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t,
                   std::int64_t, double, double, std::int64_t, std::int64_t)>("bie::diode_mix_embedding_");
  op.call(weight, rows, votes, exp_avg_s, embedding_dim, o.step, o.lr, o.beta2, o.seed, o.stream);
}

void diode_mix_weight_only_rows_(const CodedWeightTensors& table, const at::Tensor& rows, const at::Tensor& grad,
                                 const at::Tensor& exp_avg_l, const at::Tensor& exp_avg_s, bool moves_zeros,
                                 const DiodeMixStep& o) {
  static const auto op =
      find_op<void(const at::Tensor&, const at::Tensor&, const OptTensor&, const at::Tensor&, const at::Tensor&,
                   const at::Tensor&, const at::Tensor&, std::int64_t, std::int64_t, std::int64_t, double, double,
                   double, double, double, bool, bool, std::int64_t, std::int64_t)>("bie::diode_mix_weight_only_rows_");
  op.call(table.qweight, table.scales, none_if_undefined(table.zeros), rows, grad, exp_avg_l, exp_avg_s, table.bits,
          table.group_size, o.step, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.correct_bias, moves_zeros, o.seed,
          o.stream);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  m.impl("diode_mix_embedding_", bie::ops::step_signs);
  m.impl("diode_mix_weight_only_rows_", bie::ops::step_codes);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("diode_mix_embedding_", bie::ops::step_signs_meta);
  m.impl("diode_mix_weight_only_rows_", bie::ops::step_codes_meta);
}
