#include "bie/layers/embedding.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <ostream>

#include "bie/ops/weight_only_rules.h"
#include "layers/entries.h"
#include "layers/finite.h"
#include "layers/ordinary_tensors.h"
#include "layers/unfilled.h"

namespace bie::layers {
namespace {

void check_padding(const char* kind, const std::optional<std::int64_t>& row, std::int64_t rows) {
  TORCH_CHECK_VALUE(!row || (*row >= -rows && *row < rows), kind, ": padding_idx is ", row.value_or(0),
                    ", the table has ", rows, " rows");
}

void check_data(const char* kind, const at::Tensor& data, at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(data.sizes() == shape && at::isFloatingType(data.scalar_type()), kind, ": the weight: expected ",
                    shape, " of a floating-point dtype, got ", data.sizes(), " of ",
                    ops::dtype_name(data.scalar_type()));
}

}  // namespace

BinaryEmbeddingImpl::BinaryEmbeddingImpl(const BinaryEmbeddingOptions& o)
    : PackedLayer(PackedWeight::Form::sign_rows, {o.num_embeddings, o.embedding_dim}), options_(o) {
  check_padding(kind(), o.padding_idx, o.num_embeddings);
  const c10::InferenceMode off(false);
  set_words(at::zeros({o.num_embeddings, (o.embedding_dim + 7) / 8}, at::kByte));
  scale_w = register_buffer("scale_w", at::zeros({o.num_embeddings, 1}));
  if (!Unfilled::wanted()) set_weight_data(at::randn({o.num_embeddings, o.embedding_dim}));
}

at::Tensor BinaryEmbeddingImpl::forward(const at::Tensor& indices) {
  return ops::binary_embedding(indices, qweight, scale_w, options_.embedding_dim, at::kFloat,
                               {options_.padding_idx, anchor()});
}

void BinaryEmbeddingImpl::set_weight_data(const at::Tensor& data) {
  check_data(kind(), data, weight_shape());
  const OrdinaryTensors ordinary;
  const at::Tensor value = data.detach().to(scale_w.options());
  finite(value, "BinaryEmbedding: the weight");
  const at::Tensor centred = value - value.mean(at::kDouble).to(at::kFloat);
  const at::Tensor padded = at::constant_pad_nd(centred, {0, 8 * qweight.size(1) - options_.embedding_dim}, -1);
  scale_w.copy_(padded.abs().mean(1, /*keepdim=*/true, at::kDouble));
  if (options_.padding_idx) scale_w.select(0, *options_.padding_idx).zero_();
  qweight.data().copy_(ops::pack_signs(padded));
}

QuantLayer::Take BinaryEmbeddingImpl::check_state(StateDict& all, const std::string& prefix) {
  Entries entries(all, prefix);
  const at::Tensor table = entries.take("qweight", qweight.sizes(), at::kByte);
  const at::Tensor scales = entries.take("scale_w", scale_w.sizes(), at::kFloat);
  return [this, table, scales] {
    const OrdinaryTensors ordinary;
    qweight.data().copy_(table);
    scale_w.copy_(scales);
  };
}

void BinaryEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << kind() << '(' << options_.num_embeddings << ", " << options_.embedding_dim;
  if (options_.padding_idx) stream << ", padding_idx=" << *options_.padding_idx;
  stream << ')';
}

WeightOnlyEmbeddingImpl::WeightOnlyEmbeddingImpl(const WeightOnlyEmbeddingOptions& o)
    : PackedLayer(PackedWeight::Form::code_rows, {o.num_embeddings, o.embedding_dim}), options_(o) {
  TORCH_CHECK_VALUE(o.bits >= 1 && o.bits <= 8 && o.bits != 7,
                    "WeightOnlyEmbedding: bits: expected 1, 2, 3, 4, 5, 6 or 8, got ", o.bits);
  TORCH_CHECK_VALUE(o.group_size == -1 || o.group_size > 0,
                    "WeightOnlyEmbedding: group_size: expected -1 or a positive number, got ", o.group_size);
  check_padding(kind(), o.padding_idx, o.num_embeddings);
  const std::int64_t dim = o.embedding_dim, size = o.group_size == -1 ? dim : std::min(o.group_size, dim);
  const std::int64_t groups = (dim + size - 1) / size;
  options_.group_size = size;
  const c10::InferenceMode off(false);
  set_words(at::zeros({o.num_embeddings, (dim * o.bits + 31) / 32}, at::kInt));
  scales = register_buffer("scales", at::ones({o.num_embeddings, groups}));
  zeros = register_buffer("zeros", at::zeros({o.num_embeddings, groups}));
  ops::CodedWeightTensors& table = packed_weight()->tensors;
  table.scales = scales;
  table.zeros = zeros;
  table.bits = o.bits;
  table.group_size = size;
}

at::Tensor WeightOnlyEmbeddingImpl::forward(const at::Tensor& indices) {
  return ops::weight_only_embedding(indices, packed_weight()->tensors, options_.embedding_dim, at::kFloat,
                                    {options_.padding_idx, anchor()});
}

ops::CodedWeightTensors WeightOnlyEmbeddingImpl::columns() const {
  ops::CodedWeightTensors weight = packed_weight()->tensors;
  for (at::Tensor* tensor : {&weight.qweight, &weight.scales, &weight.zeros}) *tensor = tensor->detach().t();
  return weight;
}

void WeightOnlyEmbeddingImpl::set_weight_data(const at::Tensor& data) {
  check_data(kind(), data, weight_shape());
  const OrdinaryTensors ordinary;
  const at::Tensor value = data.detach().to(scales.options());
  const auto [steps, offsets] = ops::weight_only_ranges(value, options_.bits, options_.group_size);
  scales.copy_(steps.t());
  zeros.copy_(offsets.t());
  qweight.data().copy_(ops::weight_only_pack(value.t().contiguous(), columns()).t());
  repack();
}

at::Tensor WeightOnlyEmbeddingImpl::open() const {
  return ops::weight_only_open(columns(), options_.embedding_dim, at::kFloat).t();
}

void WeightOnlyEmbeddingImpl::train(bool on) {
  repack();
  torch::nn::Module::train(on);
}

void WeightOnlyEmbeddingImpl::moved(torch::Device device) {
  PackedLayer::moved(device);
  repack();
}

QuantLayer::Take WeightOnlyEmbeddingImpl::check_state(StateDict& all, const std::string& prefix) {
  Entries entries(all, prefix);
  const at::Tensor table = entries.take("qweight", qweight.sizes(), at::kInt);
  const at::Tensor steps = entries.take("scales", scales.sizes(), at::kFloat);
  const at::Tensor offsets = entries.take("zeros", zeros.sizes(), at::kFloat);
  return [this, table, steps, offsets] {
    const OrdinaryTensors ordinary;
    qweight.data().copy_(table);
    scales.copy_(steps);
    zeros.copy_(offsets);
    repack();
  };
}

void WeightOnlyEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << kind() << '(' << options_.num_embeddings << ", " << options_.embedding_dim << ", bits=" << options_.bits
         << ", group_size=" << options_.group_size;
  if (options_.padding_idx) stream << ", padding_idx=" << *options_.padding_idx;
  stream << ')';
}

at::Tensor TiedHeadImpl::forward(const at::Tensor& x) {
  WeightOnlyEmbeddingImpl& table = *table_;
  const std::int64_t dim = table.options_.embedding_dim;
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == dim, "TiedHead: x is ", x.sizes(), ", the table has ", dim,
                    " features");
  const ops::CodedWeightTensors weight = table.columns();
  ops::WeightOnlyLinearOptions options;
  options.int8_activations = table.int8_activations_;
  if (!is_training())
    options.panels = table.panels_.current({table.qweight, table.scales, table.zeros}, [&] {
      return ops::weight_only_prepack(weight, dim, table.int8_activations_);
    });
  else if (const at::Tensor anchor = table.anchor(); anchor.defined())
    options.anchor = anchor.t();
  return ops::weight_only_linear(x, weight, {}, options);
}

void TiedHeadImpl::pretty_print(std::ostream& stream) const { stream << "TiedHead(" << *table_ << ')'; }

}  // namespace bie::layers
