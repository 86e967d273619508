#include "ops/weight_only/coded_weight.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "ops/backend/backend.h"
#include "ops/weight_only/words.h"

namespace bie::ops {
namespace {

bool is_width(std::int64_t bits) { return bits >= 1 && bits <= 8 && bits != 7; }

std::vector<kernels::BitRun> runs_of(const char* op, const WeightArgs& a, std::int64_t k) {
  if (!a.bit_rows.has_value()) {
    TORCH_CHECK_VALUE(is_width(a.bits), op, ": bits: expected 1, 2, 3, 4, 5, 6 or 8, got ", a.bits);
    return {{static_cast<int>(a.bits), k}};
  }
  const at::IntArrayRef list = *a.bit_rows;
  TORCH_CHECK_VALUE(list.size() % 2 == 0, op, ": bit_rows: expected bits and rows of each width, got ", list.size(),
                    " numbers");
  std::vector<kernels::BitRun> runs;
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < list.size(); i += 2) {
    TORCH_CHECK_VALUE(is_width(list[i]), op, ": bit_rows: expected rows of 1, 2, 3, 4, 5, 6 or 8 bits, got ", list[i]);
    TORCH_CHECK_VALUE(list[i + 1] >= 0 && list[i + 1] <= k - rows, op, ": the rows of bit_rows: expected ", k,
                      " in all, got ", list[i + 1], " and more");
    runs.push_back({static_cast<int>(list[i]), list[i + 1]});
    rows += list[i + 1];
  }
  TORCH_CHECK_VALUE(rows == k, op, ": the rows of bit_rows: expected ", k, ", got ", rows);
  return runs;
}

std::int64_t words_of(const std::vector<kernels::BitRun>& runs) {
  std::int64_t words = 0;
  for (const kernels::BitRun& run : runs) words += kernels::run_words(run.bits, run.rows);
  return words;
}

bool has_packed_zeros(const WeightArgs& a) { return a.zeros.has_value() && a.zeros->scalar_type() == at::kInt; }

void check_rows(const char* op, const char* name, const OptTensor& t, std::int64_t k, bool takes_short) {
  if (!t.has_value()) return;
  const at::ScalarType type = t->scalar_type();
  TORCH_CHECK_TYPE(type == at::kInt || type == at::kLong || (takes_short && type == at::kShort), op, ": ", name,
                   ": expected ", takes_short ? "int16, int32 or int64" : "int32 or int64", ", got ", type);
  TORCH_CHECK_VALUE(t->dim() == 1 && t->sym_size(0) == k, op, ": ", name, ": expected [", k, "], got ", t->sym_sizes());
}

std::uint32_t version_of(const at::Tensor& t) {
  return t.is_inference() ? 0 : static_cast<std::uint32_t>(t._version());
}

}  // namespace

void check_weight_args(const char* op, const WeightArgs& a, std::int64_t k) {
  const at::Tensor &q = a.qweight, &s = a.scales;
  TORCH_CHECK_TYPE(q.scalar_type() == at::kInt, op, ": qweight: expected int32, got ", q.scalar_type());
  TORCH_CHECK_VALUE(q.dim() == 2, op, ": qweight: expected two axes, got ", q.sym_sizes());
  check_float(op, "scales", s);
  const std::vector<kernels::BitRun> runs = runs_of(op, a, k);
  TORCH_CHECK_VALUE(q.sym_size(0) == words_of(runs), op, ": qweight: expected ", words_of(runs), " rows of words for ",
                    k, " input features, got ", q.sym_sizes());
  TORCH_CHECK_VALUE(s.dim() == 2 && s.sym_size(1) == q.sym_size(1), op, ": scales: expected [groups, ", q.sym_size(1),
                    "], got ", s.sym_sizes());
  check_rows(op, "g_idx", a.g_idx, k, /*takes_short=*/false);
  check_rows(op, "q_perm", a.q_perm, k, /*takes_short=*/true);
  const std::int64_t groups = fixed_size(s, 0);
  if (!a.g_idx.has_value()) {
    TORCH_CHECK_VALUE(a.group_size == -1 || a.group_size > 0, op,
                      ": group_size: expected -1 or a positive number, got ", a.group_size);
    const std::int64_t size = a.group_size == -1 ? std::max<std::int64_t>(1, k) : a.group_size;
    TORCH_CHECK_VALUE(groups == (k + size - 1) / size, op, ": scales are ", s.sym_sizes(), ", ", k,
                      " rows in groups of ", size, " want ", (k + size - 1) / size, " groups");
  } else {
    TORCH_CHECK_VALUE(groups > 0 || k == 0, op, ": scales: expected at least one group, got ", s.sym_sizes());
  }
  if (!a.zeros.has_value()) return;
  const at::Tensor& z = *a.zeros;
  if (z.scalar_type() == at::kInt) {
    TORCH_CHECK_VALUE(!a.bit_rows.has_value(), op, ": zeros: expected float ones with bit_rows, got packed ones");
    const std::int64_t columns = (fixed_size(s, 1) * a.bits + 31) / 32;
    TORCH_CHECK_VALUE(z.dim() == 2 && z.sym_size(0) == groups && z.sym_size(1) == columns, op, ": zeros: expected [",
                      groups, ", ", columns, "], got ", z.sym_sizes(), " of int32");
  } else {
    check_float(op, "zeros", z);
    TORCH_CHECK_VALUE(z.sym_sizes() == s.sym_sizes(), op, ": zeros: expected ", s.sym_sizes(),
                      ", as the scales are, got ", z.sym_sizes());
  }
}

CodedWeight coded_weight(const char* op, const WeightArgs& a, std::int64_t k, bool looks) {
  check_weight_args(op, a, k);
  const bool meta = a.qweight.is_meta();
  if (!meta)
    check_one_device(op,
                     {a.qweight, a.scales, value_or_none(a.zeros), value_or_none(a.g_idx), value_or_none(a.q_perm)});
  const bool needs_values = !meta && looks;
  // Where panels hold what there is to read, nothing is copied: the words of a tied head are a transposed table.
  const auto dense = [needs_values](const at::Tensor& t) { return needs_values ? t.contiguous() : t; };
  CodedWeight w;
  w.words = dense(a.qweight);
  w.runs = runs_of(op, a, k);
  w.k = k;
  w.n = a.qweight.size(1);
  w.groups = a.scales.size(0);
  w.version = version_of(a.qweight) + version_of(a.scales);
  w.scales = dense(a.scales);
  w.offset = kernels::Offset::none;
  if (a.zeros.has_value()) {
    w.version += version_of(*a.zeros);
    w.offset = has_packed_zeros(a) ? kernels::Offset::zero : kernels::Offset::value;
    if (w.offset == kernels::Offset::value && a.zeros->scalar_type() != a.scales.scalar_type()) {
      w.scales = w.scales.to(at::kFloat);
      w.zeros = dense(a.zeros->to(at::kFloat));
    } else if (w.offset == kernels::Offset::value) {
      w.zeros = dense(*a.zeros);
    } else if (needs_values) {
      w.zeros = unpacked_words(*a.zeros, a.bits, w.n, /*dim=*/1) + 1;
    }
  }
  if (!needs_values) return w;
  const at::TensorOptions ints = a.qweight.options().dtype(at::kInt);
  const std::int64_t size = a.group_size == -1 ? std::max<std::int64_t>(1, k) : a.group_size;
  w.group_of =
      a.g_idx.has_value() ? a.g_idx->to(at::kInt).contiguous() : at::arange(k, ints).div(size, "floor").to(at::kInt);
  if (a.q_perm.has_value()) {
    at::Tensor order = a.q_perm->to(at::kInt);
    if (a.q_perm->scalar_type() == at::kShort) order = order.bitwise_and(0xffff);
    // All zero: no permutation. On CUDA the file's reader tells.
    if (!order.is_cpu() || k == 1 || order.any().item<bool>()) w.input_of = order.contiguous();
  }
  if (looks) backend_of(op, a.qweight).weight_only.check_values(op, w);
  return w;
}

}  // namespace bie::ops
