#include "bie/layers/weight_files.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <vector>

namespace bie::layers {
namespace {

/// [rows, columns] with its axes exchanged, dense.
template <class T>
at::Tensor transposed(const std::vector<T>& values, at::ScalarType type, std::int64_t rows, std::int64_t columns) {
  at::Tensor table = at::empty({rows, columns}, type);
  std::memcpy(table.mutable_data_ptr(), values.data(), values.size() * sizeof(T));
  return table.t().contiguous();
}

}  // namespace

WeightOnlyLinear weight_only_linear(const formats::CodedRows& w, const at::Tensor& bias) {
  WeightOnlyLinear layer(WeightOnlyLinearOptions{w.columns, w.rows, w.bits, w.group, bias.defined()});
  StateDict state{{"qweight", transposed(w.words, at::kInt, w.rows, w.row_words())},
                  {"scales", transposed(w.scales, at::kFloat, w.rows, w.groups())},
                  {"g_idx", layer->g_idx}};
  if (w.zeros.empty())
    state["qzeros"] = ops::pack_words(at::full({w.groups(), w.rows}, w.zero - 1, at::kInt), w.bits, /*dim=*/1);
  else
    state["zeros"] = transposed(w.zeros, at::kFloat, w.rows, w.groups());
  if (bias.defined()) state["bias"] = bias;
  layer->check_state(state, "")();
  layer->eval();
  return layer;
}

}  // namespace bie::layers
