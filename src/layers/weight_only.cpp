#include "bie/layers/weight_only.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <memory>
#include <ostream>
#include <utility>

#include "bie/ops/weight_only.h"
#include "bie/ops/weight_rules.h"
#include "layers/finite.h"
#include "layers/ordinary_tensors.h"
#include "layers/unfilled.h"

namespace bie::layers {
namespace {

std::int64_t words(std::int64_t values, int bits) { return (values * bits + 31) / 32; }

std::string dtype_name(at::ScalarType type) { return c10::getDtypeNames(type).first; }

/// Takes entries of a state out of it.
class Entries {
 public:
  Entries(StateDict& entries, const std::string& prefix) : entries_(entries), prefix_(prefix) {}

  std::string name(const char* key) const { return "the entry '" + prefix_ + key + "'"; }
  bool has(const char* key) const { return entries_.count(prefix_ + key) > 0; }

  /// Of this shape and of `type`, or finite floats where that is kFloat.
  at::Tensor take(const char* key, at::IntArrayRef shape, at::ScalarType type) {
    const auto found = entries_.find(prefix_ + key);
    TORCH_CHECK_VALUE(found != entries_.end(), name(key), " is missing");
    const at::Tensor tensor = found->second.detach();
    const bool fits = type == at::kFloat ? at::isFloatingType(tensor.scalar_type()) : tensor.scalar_type() == type;
    TORCH_CHECK_VALUE(tensor.sizes() == shape && fits, name(key), " is ", tensor.sizes(), " of ",
                      dtype_name(tensor.scalar_type()), ", ", shape, " of ",
                      type == at::kFloat ? "a floating-point dtype" : dtype_name(type), " is wanted");
    if (type == at::kFloat) finite(tensor, name(key));
    entries_.erase(found);
    return tensor;
  }

 private:
  StateDict& entries_;
  const std::string& prefix_;
};

}  // namespace

PackedLayer::PackedLayer(std::vector<std::int64_t> shape) : shape_(std::move(shape)) {
  for (const std::int64_t size : shape_)
    TORCH_CHECK_VALUE(size > 0, "a quantised layer wants positive sizes, its weight would be ",
                      at::IntArrayRef(shape_));
}

at::Tensor PackedLayer::anchor(at::IntArrayRef sizes) {
  if (!trainable_ || !is_training() || !at::GradMode::is_enabled()) return {};
  if (!anchor_.defined()) {
    const c10::InferenceMode off(false);
    anchor_ = at::zeros({1}, at::TensorOptions().device(qweight.device())).expand(sizes).requires_grad_();
  }
  return anchor_;
}

StateDict PackedLayer::state(bool /*packed*/) const {
  StateDict state;
  for (const auto& item : named_parameters(/*recurse=*/false)) state[item.key()] = item.value().detach();
  for (const auto& item : named_buffers(/*recurse=*/false))
    if (item.value().defined()) state[item.key()] = item.value().detach();
  return state;
}

WeightOnlyLinearImpl::WeightOnlyLinearImpl(const WeightOnlyLinearOptions& o)
    : PackedLayer({o.out_features, o.in_features}), options_(o) {
  TORCH_CHECK_VALUE(o.bits >= 1 && o.bits <= 8 && o.bits != 7, "WeightOnlyLinear: bits is ", o.bits,
                    ", 1, 2, 3, 4, 5, 6 or 8 is wanted");
  TORCH_CHECK_VALUE(o.group_size == -1 || o.group_size > 0, "WeightOnlyLinear: group_size is ", o.group_size,
                    ", -1 or a positive number is wanted");
  if (options_.group_size == -1) options_.group_size = o.in_features;
  const c10::InferenceMode off(false);
  const std::int64_t n = o.out_features, groups = (o.in_features + options_.group_size - 1) / options_.group_size;
  qweight = register_parameter("qweight", at::zeros({words(o.in_features, o.bits), n}, at::kInt), false);
  g_idx = register_buffer("g_idx", at::arange(o.in_features, at::kInt).div(options_.group_size, "floor").to(at::kInt));
  scales = register_buffer("scales", at::ones({groups, n}));
  zeros = register_buffer("zeros", at::zeros({groups, n}));
  if (o.bias) bias = register_parameter("bias", at::zeros({n}));
}

ops::CodedWeightTensors WeightOnlyLinearImpl::coded() const {
  ops::CodedWeightTensors weight;
  weight.qweight = qweight;
  weight.scales = scales;
  weight.zeros = qzeros.defined() ? qzeros : zeros;
  weight.bits = options_.bits;
  weight.g_idx = g_idx;
  return weight;
}

at::Tensor WeightOnlyLinearImpl::forward(const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == options_.in_features, "x is ", x.sizes(), ", the layer has ",
                    options_.in_features, " features");
  const ops::CodedWeightTensors weight = coded();
  ops::WeightOnlyLinearOptions options;
  if (is_training()) {
    options.anchor = anchor({options_.in_features, options_.out_features});
  } else {
    const std::lock_guard lock(derived_);
    const at::Tensor sources[] = {weight.qweight, weight.scales, weight.zeros, weight.g_idx};
    bool current = panels_.defined();
    for (std::size_t i = 0; current && i < 4; ++i) current = panels_seen_[i] == sources[i];
    if (!current) {
      const OrdinaryTensors ordinary;
      panels_ = ops::weight_only_prepack(weight, options_.in_features);
      panels_seen_.clear();
      for (const at::Tensor& source : sources) panels_seen_.emplace_back(source);
    }
    options.panels = panels_;
  }
  return ops::weight_only_linear(x, weight, bias, options);
}

void WeightOnlyLinearImpl::set_weight_data(const at::Tensor& data) {
  TORCH_CHECK_VALUE(data.sizes() == at::IntArrayRef(weight_shape()) && at::isFloatingType(data.scalar_type()),
                    "WeightOnlyLinear: the weight is ", data.sizes(), " of ", dtype_name(data.scalar_type()), ", ",
                    at::IntArrayRef(weight_shape()), " of a floating-point dtype is wanted");
  const OrdinaryTensors ordinary;
  const at::Tensor value = data.detach().to(scales.options());
  finite(value, "WeightOnlyLinear: the weight");
  const auto [steps, offsets] = ops::weight_only_ranges(value, options_.bits, options_.group_size);
  scales.copy_(steps);
  zeros.copy_(offsets);
  qzeros = at::Tensor();
  g_idx.copy_(at::arange(options_.in_features, g_idx.options()).div(options_.group_size, "floor"));
  qweight.data().copy_(ops::weight_only_pack(value.t().contiguous(), coded()));
  repack();
}

at::Tensor WeightOnlyLinearImpl::open() const {
  return ops::weight_only_open(coded(), options_.in_features, at::kFloat);
}

void WeightOnlyLinearImpl::repack() {
  panels_ = at::Tensor();
  panels_seen_.clear();
}

void WeightOnlyLinearImpl::train(bool on) {
  repack();
  torch::nn::Module::train(on);
}

StateDict WeightOnlyLinearImpl::state(bool packed) const {
  StateDict state = PackedLayer::state(packed);
  if (qzeros.defined()) {
    state.erase("zeros");
    state["qzeros"] = qzeros;
  }
  return state;
}

void WeightOnlyLinearImpl::moved(torch::Device device) {
  PackedLayer::moved(device);
  if (qzeros.defined()) qzeros = qzeros.to(device);
  repack();
}

std::int64_t WeightOnlyLinearImpl::derived_bytes() const {
  return panels_.defined() ? static_cast<std::int64_t>(panels_.nbytes()) : 0;
}

QuantLayer::Take WeightOnlyLinearImpl::check_state(StateDict& all, const std::string& prefix) {
  struct Staged {
    at::Tensor qweight, g_idx, scales, zeros, qzeros, bias;
  };
  Entries entries(all, prefix);
  const auto s = std::make_shared<Staged>();
  const at::IntArrayRef table = scales.sizes();
  s->qweight = entries.take("qweight", qweight.sizes(), at::kInt);
  s->g_idx = entries.take("g_idx", g_idx.sizes(), at::kInt);
  TORCH_CHECK_VALUE(s->g_idx.min().item<int>() >= 0 && s->g_idx.max().item<int>() < table[0], entries.name("g_idx"),
                    " holds groups outside [0, ", table[0] - 1, "]");
  s->scales = entries.take("scales", table, at::kFloat);
  if (entries.has("qzeros"))
    s->qzeros = entries.take("qzeros", {table[0], words(options_.out_features, options_.bits)}, at::kInt);
  else
    s->zeros = entries.take("zeros", table, at::kFloat);
  if (bias.defined()) s->bias = entries.take("bias", bias.sizes(), at::kFloat);
  return [this, s] {
    const OrdinaryTensors ordinary;
    qweight.data().copy_(s->qweight);
    g_idx.copy_(s->g_idx);
    scales.copy_(s->scales);
    if (s->zeros.defined()) zeros.copy_(s->zeros);
    qzeros = s->qzeros.defined() ? s->qzeros.to(qweight.device()).clone() : at::Tensor();
    if (bias.defined()) bias.data().copy_(s->bias);
    repack();
  };
}

void WeightOnlyLinearImpl::pretty_print(std::ostream& stream) const {
  stream << kind() << '(' << options_.in_features << ", " << options_.out_features << ", bits=" << options_.bits
         << ", group_size=" << options_.group_size << (bias.defined() ? ", bias)" : ")");
}

BinaryEmbeddingImpl::BinaryEmbeddingImpl(const BinaryEmbeddingOptions& o)
    : PackedLayer({o.num_embeddings, o.embedding_dim}), options_(o) {
  TORCH_CHECK_VALUE(!o.padding_idx || (*o.padding_idx >= -o.num_embeddings && *o.padding_idx < o.num_embeddings),
                    "BinaryEmbedding: padding_idx is ", o.padding_idx.value_or(0), ", the table has ", o.num_embeddings,
                    " rows");
  const c10::InferenceMode off(false);
  qweight = register_parameter("qweight", at::zeros({o.num_embeddings, (o.embedding_dim + 7) / 8}, at::kByte), false);
  scale_w = register_buffer("scale_w", at::zeros({o.num_embeddings, 1}));
  if (!Unfilled::wanted()) set_weight_data(at::randn({o.num_embeddings, o.embedding_dim}));
}

at::Tensor BinaryEmbeddingImpl::forward(const at::Tensor& indices) {
  const at::Tensor leaf = anchor(weight_shape());
  return ops::binary_embedding(indices, qweight, scale_w, options_.embedding_dim, at::kFloat,
                               {options_.padding_idx, leaf});
}

void BinaryEmbeddingImpl::set_weight_data(const at::Tensor& data) {
  TORCH_CHECK_VALUE(data.sizes() == at::IntArrayRef(weight_shape()) && at::isFloatingType(data.scalar_type()),
                    "BinaryEmbedding: the weight is ", data.sizes(), " of ", dtype_name(data.scalar_type()), ", ",
                    at::IntArrayRef(weight_shape()), " of a floating-point dtype is wanted");
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

}  // namespace bie::layers
