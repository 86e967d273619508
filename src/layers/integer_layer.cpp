#include "bie/layers/integer_layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <memory>
#include <ostream>
#include <utility>

#include "bie/ops/weight_rules.h"
#include "layers/finite.h"
#include "layers/ordinary_tensors.h"
#include "layers/unfilled.h"

namespace bie::layers {

namespace {

/// Features of x, once all sizes are known to be positive.
std::int64_t features(at::IntArrayRef shape, std::int64_t groups) {
  for (const std::int64_t size : shape)
    TORCH_CHECK_VALUE(size > 0, "a quantised layer wants positive sizes, its weight would be ", shape);
  return shape[1] * groups;
}

}  // namespace

IntegerLayer::IntegerLayer(Traits traits)
    : ActivationQuantizer(traits.activation_bits, features(traits.weight_shape, traits.groups), traits.feature_axis),
      traits_(std::move(traits)) {
  const c10::InferenceMode off(false);
  const at::IntArrayRef shape(traits_.weight_shape);
  const double depth = static_cast<double>(weight_count() / shape[0]);
  const double bound = 1 / std::sqrt(depth);  // Kaiming uniform with a = sqrt(5)
  const bool filled = !Unfilled::wanted();
  weight = register_parameter("weight", filled ? at::empty(shape).uniform_(-bound, bound) : at::Tensor(), filled);
  qweight = register_parameter("qweight", at::Tensor(), /*requires_grad=*/false);
  bias_a = register_parameter("bias_a", bias_a);
  scale_a = register_parameter("scale_a", scale_a);
  scale_w = register_buffer("scale_w", at::ones({}));
  if (eps.defined()) eps = register_buffer("eps", eps);
  if (traits_.has_bias) bias = register_parameter("bias", at::empty({shape[0]}).uniform_(-bound, bound));
  if (traits_.has_channel_scale) channel_scale = register_buffer("channel_scale", at::ones({shape[0]}));
  anchor_ = at::empty({0}).requires_grad_();
}

/// Keeps the tensor where there is one, so that an optimizer goes on holding the layer's weight.
void IntegerLayer::set_weight(const at::Tensor& value) {
  repack();
  if (!weight.defined() || !value.defined()) {
    weight = value;
    parameters_["weight"] = weight;
  } else {
    weight.mutable_grad() = at::Tensor();
    weight.set_requires_grad(false);
    weight.set_data(value);
  }
  if (weight.defined() && at::isFloatingType(weight.scalar_type())) weight.set_requires_grad(weight_trainable_);
}

void IntegerLayer::set_qweight(const at::Tensor& value) { parameters_["qweight"] = qweight = value; }

void IntegerLayer::make_integer(const at::Tensor& codes, const at::Tensor& scale) {
  set_weight(codes);
  scale_w.copy_(scale);
}

void IntegerLayer::set_weight_data(const at::Tensor& data) {
  TORCH_CHECK_VALUE(data.sizes() == at::IntArrayRef(traits_.weight_shape) && at::isFloatingType(data.scalar_type()),
                    traits_.kind, ": the weight: expected ", at::IntArrayRef(traits_.weight_shape),
                    " of a floating-point type, got ", data.sizes(), " of ", data.scalar_type());
  const OrdinaryTensors ordinary;
  at::Tensor value = data.detach().to(bias_a.options(), /*non_blocking=*/false, /*copy=*/true).contiguous();
  finite(value, std::string(traits_.kind) + ": the weight");
  if (channel_scale.defined()) {
    const auto [split, scales] = ops::split_channels(value);
    channel_scale.copy_(scales);
    value = split;
  }
  set_qweight({});
  set_weight(value);
  set_prepared(false);
  prepare_params();
}

void IntegerLayer::generate_quantized_weight(bool qweight_only) {
  const OrdinaryTensors ordinary;
  if (weight.defined()) {
    repack();
    current_ = pack();
    weight_seen_ = Seen(weight);
    set_qweight(current_.qweight);
    scale_w.copy_(current_.scale_w);
  }
  if (!qweight_only || !weight.defined()) return;
  const Packed packed = current_;
  set_weight({});
  current_ = packed;
}

void IntegerLayer::set_quantized_weight_data(const at::Tensor& packed, const at::Tensor& weight_scale) {
  const std::vector<std::int64_t> sizes = ops::packed_weight_shape(traits_.weight_shape, traits_.bits);
  const at::IntArrayRef shape(sizes);
  const at::ScalarType type = traits_.bits == 1 ? at::kByte : at::kChar;
  TORCH_CHECK_VALUE(packed.sizes() == shape && packed.scalar_type() == type, "qweight: expected ", shape, " of ", type,
                    ", got ", packed.sizes(), " of ", packed.scalar_type());
  TORCH_CHECK_VALUE(!weight_scale.defined() || weight_scale.numel() == 1, "the weight's scale is not one number");
  const OrdinaryTensors ordinary;
  set_weight({});
  const at::Tensor dense = packed.detach().contiguous();
  set_qweight(dense.is_inference() ? dense.clone() : dense);
  if (weight_scale.defined()) scale_w.copy_(weight_scale.reshape({}));
}

void IntegerLayer::set_weight_trainable(bool trainable) {
  weight_trainable_ = trainable;
  if (weight.defined() && at::isFloatingType(weight.scalar_type())) weight.set_requires_grad(trainable);
}

void IntegerLayer::repack() {
  current_ = {};
  weight_seen_ = {};
  panels_ = at::Tensor();
  panels_seen_ = {};
}

void IntegerLayer::train(bool on) {
  if (on || is_training()) repack();
  if (is_training()) guard_scale();  // the optimizer's last step was not followed by a forward pass
  torch::nn::Module::train(on);
}

void IntegerLayer::moved(torch::Device device) {
  anchor_ = at::empty({0}, at::TensorOptions().device(device)).requires_grad_();
  repack();
}

std::int64_t IntegerLayer::derived_bytes() const {
  std::int64_t bytes = panels_.defined() ? static_cast<std::int64_t>(panels_.nbytes()) : 0;
  const bool own = current_.qweight.defined() && !(qweight.defined() && current_.qweight.is_same(qweight)) &&
                   !(weight.defined() && current_.qweight.is_alias_of(weight));
  return bytes + (own ? static_cast<std::int64_t>(current_.qweight.nbytes()) : 0);
}

const char* IntegerLayer::weight_form() const {
  if (!weight.defined()) return "packed";
  return at::isFloatingType(weight.scalar_type()) ? "float" : "int8";
}

void IntegerLayer::pretty_print(std::ostream& stream) const {
  stream << traits_.kind << '(' << bias_a.size(0) << ", " << traits_.weight_shape[0] << traits_.geometry << ", "
         << weight_form() << " weight";
  if (traits_.has_bias) stream << ", bias";
  if (traits_.has_channel_scale) stream << ", scales of channels";
  if (compat() == Compat::bie_0_2_6)
    stream << ", compat=bie-0.2.6";
  else if (grad_mode() == ops::GradMode::reference)
    stream << ", reference gradients";
  stream << ')';
}

/// Makes current_ the packed form of the weight as it is.
void IntegerLayer::refresh() {
  if (!weight.defined()) {
    current_ = {qweight, scale_w};
    return;
  }
  if (current_.qweight.defined() && weight_seen_ == weight) return;
  const OrdinaryTensors ordinary;
  current_ = pack();
  weight_seen_ = Seen(weight);
  if (!qweight.defined()) return;
  set_qweight(current_.qweight);
  scale_w.copy_(current_.scale_w);
}

at::Tensor IntegerLayer::opt_weight() {
  if (is_training() && weight.defined()) return weight;
  const std::lock_guard lock(derived_);
  refresh();
  return current_.qweight;
}

IntegerLayer::Operand IntegerLayer::operand() {
  if (is_training() && weight.defined()) {
    const bool latent_weight = at::isFloatingType(weight.scalar_type());
    // The anchor also says that int8 is plain codes: one that asks for no gradient comes with a frozen weight.
    const at::Tensor anchor = weight_trainable_ ? anchor_ : anchor_.detach();
    return {weight, latent_weight ? float_weight_scale() : scale_w, {}, anchor};
  }
  const std::lock_guard lock(derived_);
  refresh();
  if (!is_training() && !(panels_.defined() && panels_seen_ == current_.qweight)) {
    const OrdinaryTensors ordinary;
    panels_ = prepack(current_.qweight);
    panels_seen_ = Seen(current_.qweight);
  }
  return {current_.qweight, current_.scale_w, is_training() ? at::Tensor() : panels_, {}};
}

at::Tensor IntegerLayer::finish(const at::Tensor& y) const {
  at::Tensor scaled = channel_scale.defined() ? y * along_features(channel_scale, y) : y;
  return bias.defined() ? scaled.add_(along_features(bias, y)) : scaled;  // y is nobody else's
}

StateDict IntegerLayer::state(bool packed) const {
  StateDict state;
  for (const auto& item : named_parameters(/*recurse=*/false)) state[item.key()] = item.value().detach();
  for (const auto& item : named_buffers(/*recurse=*/false)) state[item.key()] = item.value().detach();
  if (const float least = is_training() ? least_scale() : 0; least > 0)
    state["scale_a"] = state["scale_a"].clamp_min(least);
  if (!packed) {
    if (weight.defined()) state.erase("qweight");  // it follows from the weight
    return state;
  }
  const at::NoGradGuard no_grad;
  const Packed form = weight.defined() ? pack() : Packed{qweight, scale_w};
  state.erase("weight");
  state["qweight"] = form.qweight.detach();
  state["scale_w"] = form.scale_w.detach();
  return state;
}

struct IntegerLayer::Staged {
  at::Tensor weight, qweight, bias_a, scale_a, scale_w, eps, bias, channel_scale;
  bool prepared = false;
};

QuantLayer::Take IntegerLayer::check_state(StateDict& entries, const std::string& prefix) {
  const auto name = [&](const char* key) { return "the entry '" + prefix + key + "'"; };
  const auto take = [&](const char* key, bool wanted = false) {
    const auto found = entries.find(prefix + key);
    TORCH_CHECK_VALUE(!wanted || found != entries.end(), name(key), " is missing");
    if (found == entries.end()) return at::Tensor();
    const at::Tensor tensor = found->second.detach();
    entries.erase(found);
    return tensor;
  };
  const auto vector = [&](const char* key, const at::Tensor& like, bool wanted = true) {
    const at::Tensor tensor = take(key, wanted);
    if (!tensor.defined()) return tensor;
    ops::check_entry(tensor, like.sizes(), like.scalar_type(), name(key));
    return tensor.to(like.scalar_type());
  };
  const auto scale = [&](const char* key, std::optional<double> least, bool wanted = true) {
    const at::Tensor tensor = take(key, wanted);
    return tensor.defined() ? ops::check_scale_entry(tensor, least, name(key)) : tensor;
  };

  const bool has_scales = entries.count(prefix + "scale_a") + entries.count(prefix + "scale_w") > 0;
  const bool plain = traits_.bits == 1 && !has_scales;  // a CPP class: neither scales nor bias_a
  const auto staged = std::make_shared<Staged>();
  Staged& s = *staged;
  s.bias_a = vector("bias_a", bias_a, !plain);
  if (!s.bias_a.defined()) s.bias_a = at::zeros_like(bias_a);
  s.scale_a = plain ? at::ones({}) : scale("scale_a", {});  // a learned one may have crossed zero
  s.scale_w = plain ? at::ones({}) : scale("scale_w", 0);
  s.eps = scale("eps", 1e-30, /*wanted=*/false);
  if (bias.defined()) s.bias = vector("bias", bias);
  if (channel_scale.defined()) s.channel_scale = vector("channel_scale", channel_scale);
  s.prepared = s.scale_w.item<float>() != 1;  // BITorch Engine's value of a layer that nobody prepared

  s.weight = take("weight");
  const at::Tensor packed = take("qweight");
  TORCH_CHECK_VALUE(s.weight.defined() || packed.defined(), name("weight"), " (or '", prefix, "qweight') is missing");
  if (!s.weight.defined()) {
    s.qweight = ops::read_packed_weight(packed, traits_.weight_shape, traits_.bits, has_scales, name("qweight"));
  } else {
    const at::ScalarType type = bias_a.scalar_type();
    ops::check_weight_entry(s.weight, traits_.weight_shape, traits_.bits, type, name("weight"));
    const bool is_float = at::isFloatingType(s.weight.scalar_type());
    s.weight = (is_float ? s.weight.to(type) : s.weight).contiguous();
    if (plain && is_float)  // as floats it would be scaled
      s.qweight = std::get<0>(ops::pack_weight(std::exchange(s.weight, {}), 1));
  }
  return [this, staged] { take_state(*staged); };
}

void IntegerLayer::take_state(const Staged& s) {
  const OrdinaryTensors ordinary;
  // Copies: a staged tensor may be a view of a mapped file, which the layer must not keep open.
  const auto own = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; };
  set_weight(own(s.weight));
  set_qweight(own(s.qweight));
  bias_a.copy_(s.bias_a);
  scale_a.copy_(s.scale_a);
  scale_w.copy_(s.scale_w);
  if (eps.defined() && s.eps.defined()) eps.copy_(s.eps);
  if (bias.defined()) bias.copy_(s.bias);
  if (channel_scale.defined()) channel_scale.copy_(s.channel_scale);
  set_prepared(s.prepared);
  set_guarded_scale(0);
}

}  // namespace bie::layers
