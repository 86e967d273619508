#include "bie/layers/weight_only.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <memory>
#include <ostream>
#include <utility>

#include "bie/ops/weight_only_rules.h"
#include "layers/entries.h"
#include "layers/ordinary_tensors.h"

namespace bie::layers {
namespace {

std::int64_t words(std::int64_t values, int bits) { return (values * bits + 31) / 32; }
std::int64_t groups_of(std::int64_t rows, std::int64_t size) { return size == -1 ? 1 : (rows + size - 1) / size; }

}  // namespace

CodedLinear::CodedLinear(std::int64_t in, std::int64_t out, std::int64_t words, std::int64_t groups, bool with_bias)
    : PackedLayer(PackedWeight::Form::codes, {out, in}) {
  const c10::InferenceMode off(false);
  set_words(at::zeros({words, out}, at::kInt));
  scales = register_buffer("scales", at::ones({groups, out}));
  zeros = register_buffer("zeros", at::zeros({groups, out}));
  if (with_bias) bias = register_parameter("bias", at::zeros({out}));
  coded().scales = scales;
  coded().zeros = zeros;
}

at::Tensor CodedLinear::forward(const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == in_features(), "x: expected the layer's ", in_features(),
                    " features, got ", x.sizes());
  check_weight();
  const ops::CodedWeightTensors& weight = coded();
  ops::WeightOnlyLinearOptions options;
  options.channel_scale = channel_scale_of_x();
  options.int8_activations = int8_activations_;
  if (is_training())
    options.anchor = anchor();
  else
    options.panels = panels_.current({weight.qweight, weight.scales, weight.zeros, weight.g_idx, weight.q_perm}, [&] {
      return ops::weight_only_prepack(weight, in_features(), int8_activations_);
    });
  return ops::weight_only_linear(x, weight, bias, options);
}

at::Tensor CodedLinear::open() const {
  check_weight();
  return ops::weight_only_open(coded(), in_features(), at::kFloat);
}

void CodedLinear::train(bool on) {
  repack();
  torch::nn::Module::train(on);
}

void CodedLinear::moved(torch::Device device) {
  PackedLayer::moved(device);
  repack();
}

WeightOnlyLinearImpl::WeightOnlyLinearImpl(const WeightOnlyLinearOptions& o)
    : CodedLinear(o.in_features, o.out_features, words(o.in_features, o.bits),
                  groups_of(o.in_features, o.group_size == 0 ? 1 : o.group_size), o.bias),
      options_(o) {
  TORCH_CHECK_VALUE(o.bits >= 1 && o.bits <= 8 && o.bits != 7,
                    "WeightOnlyLinear: bits: expected 1, 2, 3, 4, 5, 6 or 8, got ", o.bits);
  TORCH_CHECK_VALUE(o.group_size == -1 || o.group_size > 0,
                    "WeightOnlyLinear: group_size: expected -1 or a positive number, got ", o.group_size);
  if (options_.group_size == -1) options_.group_size = o.in_features;
  const c10::InferenceMode off(false);
  g_idx = register_buffer("g_idx", at::arange(o.in_features, at::kInt).div(options_.group_size, "floor").to(at::kInt));
  coded().bits = o.bits;
  coded().g_idx = g_idx;
}

void WeightOnlyLinearImpl::set_packed_zeros(const at::Tensor& packed) {
  qzeros = packed;
  coded().zeros = packed.defined() ? packed : zeros;
}

void WeightOnlyLinearImpl::set_weight_data(const at::Tensor& data) {
  TORCH_CHECK_VALUE(data.sizes() == at::IntArrayRef(weight_shape()) && at::isFloatingType(data.scalar_type()),
                    "WeightOnlyLinear: the weight: expected ", at::IntArrayRef(weight_shape()),
                    " of a floating-point dtype, got ", data.sizes(), " of ", ops::dtype_name(data.scalar_type()));
  const OrdinaryTensors ordinary;
  const at::Tensor value = data.detach().to(scales.options());
  const auto [steps, offsets] = ops::weight_only_ranges(value, options_.bits, options_.group_size);
  scales.copy_(steps);
  zeros.copy_(offsets);
  set_packed_zeros({});
  g_idx.copy_(at::arange(options_.in_features, g_idx.options()).div(options_.group_size, "floor"));
  qweight.data().copy_(ops::weight_only_pack(value.t().contiguous(), coded()));
  repack();
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
  CodedLinear::moved(device);
  if (qzeros.defined()) set_packed_zeros(qzeros.to(device));
}

QuantLayer::Take WeightOnlyLinearImpl::check_state(StateDict& all, const std::string& prefix) {
  struct Staged {
    at::Tensor qweight, g_idx, scales, zeros, qzeros, bias;
  };
  Entries entries(all, prefix);
  const auto s = std::make_shared<Staged>();
  const at::IntArrayRef table = scales.sizes();
  s->qweight = entries.take("qweight", qweight.sizes(), at::kInt);
  s->g_idx = entries.take("g_idx");
  ops::check_groups_entry(s->g_idx, options_.in_features, table[0], entries.name("g_idx"));
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
    set_packed_zeros(s->qzeros.defined() ? s->qzeros.to(qweight.device()).clone() : at::Tensor());
    if (bias.defined()) bias.data().copy_(s->bias);
    repack();
  };
}

void WeightOnlyLinearImpl::pretty_print(std::ostream& stream) const {
  stream << kind() << '(' << options_.in_features << ", " << options_.out_features << ", bits=" << options_.bits
         << ", group_size=" << options_.group_size << (bias.defined() ? ", bias)" : ")");
}

}  // namespace bie::layers
