#include "bie/layers/weight_files.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <vector>

#include "data/tensors.h"
namespace bie::layers {
namespace {

/// [rows, columns] with its axes exchanged, dense.
template <class T>
at::Tensor transposed(const std::vector<T>& values, at::ScalarType type, std::int64_t rows, std::int64_t columns) {
  at::Tensor table = at::empty({rows, columns}, type);
  std::memcpy(table.mutable_data_ptr(), values.data(), values.size() * sizeof(T));
  return table.t().contiguous();
}

constexpr std::int64_t double_quantised_below = 256;  // a wider group has its scales and zeros as they are

/// The tensors of a layer of a file.
class FileLayer {
 public:
  explicit FileLayer(const formats::CodedLayer& layer) : layer_(layer) {}

  bool has(const char* key) const { return layer_.tensors.count(key) > 0; }
  at::Tensor at(const char* key) const {
    TORCH_CHECK_VALUE(has(key), "a layer of a file has no ", key);
    return data::tensor_of(layer_.tensors.at(key));
  }
  /// [groups, n] or [1, n] of a table with one entry for each group of columns.
  at::Tensor by_column(at::Tensor table) const {
    if (table.dim() == 3 && table.size(2) == 1 && !layer_.by_column) table = table.expand({-1, -1, layer_.scale_group});
    return table.reshape({table.size(0), -1}).narrow(1, 0, layer_.out_features);
  }
  /// (codes - zeros) * scales in the dtype of these two.
  at::Tensor opened(const at::Tensor& codes, const char* zeros, const char* scales) const {
    const at::Tensor z = by_column(at(zeros));
    return (by_column(codes).to(z.scalar_type()) - z) * by_column(at(scales));
  }

 private:
  const formats::CodedLayer& layer_;
};

/// z of GPTQ's second version as the first stores it, or, where one is 0, as float zeros s * z.
void put_plain_zeros(const formats::CodedLayer& layer, const at::Tensor& stored, StateDict* state) {
  const at::Tensor zeros = ops::unpack_words(stored, layer.bits, layer.out_features, /*dim=*/1);
  if (zeros.min().item<int>() > 0)
    (*state)["qzeros"] = ops::pack_words(zeros - 1, layer.bits, /*dim=*/1);
  else
    (*state)["zeros"] = state->at("scales").to(at::kFloat) * zeros;
}

void put_gba(const formats::CodedLayer& layer, const FileLayer& file, StateDict* state) {
  const bool doubly = layer.scale_group > 0 && layer.group < double_quantised_below;
  if (!doubly) {
    for (const char* key : {"scales", layer.whole_zeros ? "qzeros" : "zeros"}) (*state)[key] = file.at(key);
    return;
  }
  const bool both = file.has("qstatistic");
  const at::Tensor codes = file.at(both ? "qstatistic" : "qscales");
  (*state)["scales"] = file.opened(both ? codes.bitwise_right_shift(4) : codes, "qscales_zeros", "qscales_scales");
  if (both)
    (*state)["zeros"] = file.opened(codes.bitwise_and(15), "qzeros_zeros", "qzeros_scales");
  else
    (*state)["qzeros"] = file.at("qzeros");
}

}  // namespace

WeightOnlyLinear weight_only_linear(const formats::CodedLayer& layer) {
  using Kind = formats::CodedLayer::Kind;
  TORCH_CHECK_VALUE(layer.kind != Kind::table, "this layer is an embedding, which no linear is");
  TORCH_CHECK_VALUE(layer.kind != Kind::mbwq && layer.kind != Kind::mixed,
                    "the rows of this layer are permuted: mbwq_linear makes a layer of it, weight_only_linear none");
  const FileLayer file(layer);
  WeightOnlyLinear made(
      WeightOnlyLinearOptions{layer.in_features, layer.out_features, layer.bits, layer.group, file.has("bias")});
  StateDict state{{"qweight", file.at("qweight")}, {"g_idx", file.has("g_idx") ? file.at("g_idx") : made->g_idx}};
  if (layer.kind == Kind::gba) {
    put_gba(layer, file, &state);
  } else {
    state["scales"] = file.at("scales");
    if (layer.kind == Kind::gptq2)
      put_plain_zeros(layer, file.at("qzeros"), &state);
    else
      state["qzeros"] = file.at("qzeros");
  }
  if (file.has("bias")) state["bias"] = file.at("bias");
  made->check_state(state, "")();
  made->eval();
  return made;
}

MBWQLinear mbwq_linear(const formats::CodedLayer& layer) {
  using Kind = formats::CodedLayer::Kind;
  TORCH_CHECK_VALUE(layer.kind == Kind::mbwq || layer.kind == Kind::mixed,
                    "the rows of this layer are not permuted: weight_only_linear makes a layer of it");
  const FileLayer file(layer);
  MBWQLinear made(MBWQLinearOptions{layer.in_features, layer.out_features, layer.kind == Kind::mixed ? 0 : layer.bits,
                                    layer.group, file.has("bias")});
  StateDict state{{"channel_scale", made->channel_scale}};  // ones, where a file has none
  for (const auto& [key, array] : layer.tensors) state[key] = data::tensor_of(array);
  made->check_state(state, "")();
  TORCH_CHECK_VALUE(state.empty(), "a layer of a file has a ", state.begin()->first, " that MBWQLinear does not know");
  made->eval();
  return made;
}

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
