#include "bie/layers/quant_layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <utility>

#include "layers/finite.h"
#include "layers/named.h"
#include "layers/ordinary_tensors.h"
#include "layers/unfilled.h"

namespace bie::layers {

Compat compat_of(const std::string& name) {
  constexpr Named<Compat> table[] = {{Compat::none, "none"}, {Compat::bie_0_2_6, "bie-0.2.6"}};
  return value_of(table, "compat", name);
}

QuantLayer::QuantLayer(Traits traits) : traits_(std::move(traits)) {
  const c10::InferenceMode off(false);
  const at::IntArrayRef shape(traits_.weight_shape);
  for (const std::int64_t size : shape)
    TORCH_CHECK_VALUE(size > 0, "a quantised layer wants positive sizes, its weight would be ", shape);
  weight_count_ = c10::multiply_integers(shape);
  const double depth = static_cast<double>(weight_count_ / shape[0]);
  const double bound = 1 / std::sqrt(depth);  // Kaiming uniform with a = sqrt(5)
  const bool filled = !Unfilled::wanted();
  weight = register_parameter("weight", filled ? at::empty(shape).uniform_(-bound, bound) : at::Tensor(), filled);
  qweight = register_parameter("qweight", at::Tensor(), /*requires_grad=*/false);
  bias_a = register_parameter("bias_a", at::zeros({shape[1] * traits_.groups}));
  scale_a = register_parameter("scale_a", at::zeros({}));
  scale_w = register_buffer("scale_w", at::ones({}));
  if (traits_.bits > 1) eps = register_buffer("eps", at::full({}, 1e-5));
  if (traits_.has_bias) bias = register_parameter("bias", at::empty({shape[0]}).uniform_(-bound, bound));
  if (traits_.has_channel_scale) channel_scale = register_buffer("channel_scale", at::ones({shape[0]}));
  anchor_ = at::empty({0}).requires_grad_();
}

QuantLayer::Seen::Seen(const at::Tensor& tensor)
    : tensor_(tensor),
      memory_(tensor.storage()),
      data_(tensor.const_data_ptr()),
      version_(tensor.is_inference() ? 0 : static_cast<std::uint32_t>(tensor._version())) {}

bool QuantLayer::Seen::operator==(const at::Tensor& tensor) const {
  return tensor_.defined() && tensor_.is_same(tensor) && !tensor.is_inference() && data_ == tensor.const_data_ptr() &&
         version_ == static_cast<std::uint32_t>(tensor._version());
}

/// Keeps the tensor where there is one, so that an optimizer goes on holding the layer's weight.
void QuantLayer::set_weight(const at::Tensor& value) {
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

void QuantLayer::set_qweight(const at::Tensor& value) { parameters_["qweight"] = qweight = value; }

void QuantLayer::make_integer(const at::Tensor& codes, const at::Tensor& scale) {
  set_weight(codes);
  scale_w.copy_(scale);
}

void QuantLayer::set_weight_data(const at::Tensor& data) {
  TORCH_CHECK_VALUE(data.sizes() == at::IntArrayRef(traits_.weight_shape) && at::isFloatingType(data.scalar_type()),
                    traits_.kind, ": the weight is ", data.sizes(), " of ", data.scalar_type(), ", ",
                    at::IntArrayRef(traits_.weight_shape), " of a floating-point type is wanted");
  const OrdinaryTensors ordinary;
  at::Tensor value = data.detach().to(bias_a.options(), /*non_blocking=*/false, /*copy=*/true).contiguous();
  finite(value, std::string(traits_.kind) + ": the weight");
  if (channel_scale.defined()) {
    std::vector<std::int64_t> along(traits_.weight_shape.size(), 1);
    along[0] = -1;
    const at::Tensor sizes = value.abs().flatten(1).mean(1, /*keepdim=*/false, at::kDouble);
    channel_scale.copy_(at::where(sizes > 0, sizes / sizes.mean(), 1.0));
    value.div_(channel_scale.to(value.scalar_type()).view(along));
  }
  set_qweight({});
  set_weight(value);
  set_prepared(false);
  prepare_params();
}

void QuantLayer::generate_quantized_weight(bool qweight_only) {
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

void QuantLayer::set_quantized_weight_data(const at::Tensor& packed, const at::Tensor& weight_scale) {
  const at::IntArrayRef shape(traits_.packed_shape);
  TORCH_CHECK_VALUE(packed.sizes() == shape && packed.scalar_type() == traits_.packed_type, "qweight is ",
                    packed.sizes(), " of ", packed.scalar_type(), ", ", shape, " of ", traits_.packed_type,
                    " is wanted");
  TORCH_CHECK_VALUE(!weight_scale.defined() || weight_scale.numel() == 1, "the weight's scale is not one number");
  const OrdinaryTensors ordinary;
  set_weight({});
  const at::Tensor dense = packed.detach().contiguous();
  set_qweight(dense.is_inference() ? dense.clone() : dense);
  if (weight_scale.defined()) scale_w.copy_(weight_scale.reshape({}));
}

void QuantLayer::set_weight_trainable(bool trainable) {
  weight_trainable_ = trainable;
  if (weight.defined() && at::isFloatingType(weight.scalar_type())) weight.set_requires_grad(trainable);
}

namespace {

void check_floor(StepSizeGuard guard) {
  TORCH_CHECK_VALUE(guard.floor >= 0 && guard.floor <= 1, "the step size's floor is ", guard.floor,
                    ", a number in [0, 1] is wanted");
}

}  // namespace

void QuantLayer::set_step_size_guard(StepSizeGuard guard) {
  check_floor(guard);
  guard_ = guard;
}

void QuantLayer::set_guarded_scale(float value) {
  guarded_scale_ = value;
  scale_ready_ = false;
}

void QuantLayer::repack() {
  current_ = {};
  weight_seen_ = {};
  panels_ = at::Tensor();
  panels_seen_ = {};
}

void QuantLayer::train(bool on) {
  if (on || is_training()) repack();
  guard_scale();  // the optimizer's last step was not followed by a forward pass
  torch::nn::Module::train(on);
}

void QuantLayer::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  const c10::InferenceMode off(false);
  // Module::to casts everything; scales and integers keep their dtype.
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  for (const at::Tensor& tensor : {weight, qweight, scale_a, scale_w, eps, channel_scale})
    if (tensor.defined() &&
        (tensor.dim() == 0 || tensor.is_same(channel_scale) || !at::isFloatingType(tensor.scalar_type())))
      kept.emplace_back(tensor, tensor.detach());
  torch::nn::Module::to(device, dtype, non_blocking);
  for (auto& [tensor, value] : kept) tensor.set_data(value.to(device));
  anchor_ = at::empty({0}, at::TensorOptions().device(device)).requires_grad_();
  repack();
}

void QuantLayer::to(torch::Dtype dtype, bool non_blocking) { to(scale_a.device(), dtype, non_blocking); }

void QuantLayer::to(torch::Device device, bool non_blocking) {
  const c10::InferenceMode off(false);
  torch::nn::Module::to(device, non_blocking);
  anchor_ = at::empty({0}, at::TensorOptions().device(device)).requires_grad_();
  repack();
}

std::int64_t QuantLayer::derived_bytes() const {
  std::int64_t bytes = panels_.defined() ? static_cast<std::int64_t>(panels_.nbytes()) : 0;
  const bool own = current_.qweight.defined() && !(qweight.defined() && current_.qweight.is_same(qweight)) &&
                   !(weight.defined() && current_.qweight.is_alias_of(weight));
  return bytes + (own ? static_cast<std::int64_t>(current_.qweight.nbytes()) : 0);
}

const char* QuantLayer::weight_form() const {
  if (!weight.defined()) return "packed";
  return at::isFloatingType(weight.scalar_type()) ? "float" : "int8";
}

void QuantLayer::pretty_print(std::ostream& stream) const {
  stream << traits_.kind << '(' << bias_a.size(0) << ", " << traits_.weight_shape[0] << traits_.geometry << ", "
         << weight_form() << " weight";
  if (traits_.has_bias) stream << ", bias";
  if (traits_.has_channel_scale) stream << ", scales of channels";
  if (compat_ == Compat::bie_0_2_6)
    stream << ", compat=bie-0.2.6";
  else if (grad_mode_ == ops::GradMode::reference)
    stream << ", reference gradients";
  stream << ')';
}

/// Makes current_ the packed form of the weight as it is.
void QuantLayer::refresh() {
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

at::Tensor QuantLayer::opt_weight() {
  if (is_training() && weight.defined()) return weight;
  const std::lock_guard lock(derived_);
  refresh();
  return current_.qweight;
}

QuantLayer::Operand QuantLayer::operand() {
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

void QuantLayer::check_input(const at::Tensor& x) const {
  TORCH_CHECK_VALUE(x.dim() >= 1, "x is 0-dimensional, at least one axis is wanted");
  const std::int64_t features = x.size(traits_.feature_axis);
  TORCH_CHECK_VALUE(features == bias_a.size(0), "x is ", x.sizes(), " with ", features, " features, the layer has ",
                    bias_a.size(0));
}

void QuantLayer::guard_scale() {
  // data(): the same graph may hold the scale already, where the layer is called twice.
  if (const float least = least_scale(); least > 0) scale_a.data().clamp_min_(least);
}

void QuantLayer::first_batch_scale(const at::Tensor& x) {
  if (scale_ready_) return;
  const std::lock_guard lock(derived_);
  if (scale_ready_) return;
  const at::NoGradGuard no_grad;
  const bool fresh = scale_a.item<float>() == 0;
  if (fresh && !is_training()) {
    TORCH_WARN_ONCE("a quantised layer takes its activation scale from a batch of the evaluation: it was not trained");
  }
  ops::init_scale_(scale_a, x, first_batch_factor());
  const float value = scale_a.item<float>();
  if (fresh) guarded_scale_ = value;
  scale_ready_ = value != 0;
}

QuantLayer::Activation QuantLayer::activation(const at::Tensor& x) {
  if (!at::isFloatingType(x.scalar_type())) return {x, bias_a};
  check_input(x);
  first_batch_scale(x);
  guard_scale();
  const bool rounds = compat_ == Compat::bie_0_2_6 && x.scalar_type() != at::kFloat;
  if (!rounds) return {x, bias_a};
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[static_cast<std::size_t>(traits_.feature_axis < 0 ? x.dim() - 1 : traits_.feature_axis)] = bias_a.size(0);
  return {x + bias_a.to(x.scalar_type()).view(shape), {}};
}

at::Tensor QuantLayer::finish(const at::Tensor& y) const {
  const auto along = [&](const at::Tensor& channels) {
    const at::Tensor same = channels.to(y.scalar_type());
    return traits_.feature_axis < 0 ? same : same.view({1, -1, 1, 1});
  };
  const at::Tensor scaled = channel_scale.defined() ? y * along(channel_scale) : y;
  return bias.defined() ? scaled + along(bias) : scaled;
}

StateDict QuantLayer::state(bool packed) const {
  StateDict state;
  for (const auto& item : named_parameters(/*recurse=*/false)) state[item.key()] = item.value().detach();
  for (const auto& item : named_buffers(/*recurse=*/false)) state[item.key()] = item.value().detach();
  if (const float least = least_scale(); least > 0) state["scale_a"] = state["scale_a"].clamp_min(least);
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

at::Tensor QuantLayer::known_layout(const at::Tensor& packed, bool /*has_scales*/) const {
  if (packed.scalar_type() == traits_.packed_type && packed.sizes() == at::IntArrayRef(traits_.packed_shape))
    return packed.contiguous();
  return {};
}

at::Tensor QuantLayer::known_filter_layout(const at::Tensor& packed) const {
  const at::IntArrayRef shape(traits_.packed_shape);
  const std::int64_t rows = shape[0], bytes = c10::multiply_integers(shape) / rows;
  const bool known = packed.sizes() == shape || packed.sizes() == at::IntArrayRef{rows, bytes} ||
                     packed.sizes() == at::IntArrayRef{rows * bytes};
  if (packed.scalar_type() != traits_.packed_type || !known) return {};
  return packed.reshape(shape).contiguous();
}

QuantLayer::Staged QuantLayer::check_state(StateDict& entries, const std::string& prefix) const {
  const auto take = [&](const char* key) {
    const auto found = entries.find(prefix + key);
    if (found == entries.end()) return at::Tensor();
    const at::Tensor tensor = found->second.detach();
    entries.erase(found);
    return tensor;
  };
  const auto name = [&](const char* key) { return "the entry '" + prefix + key + "'"; };
  const auto vector = [&](const char* key, std::int64_t size, bool wanted, at::ScalarType type) {
    const at::Tensor tensor = take(key);
    if (!tensor.defined() && !wanted) return tensor;
    TORCH_CHECK_VALUE(tensor.defined(), name(key), " is missing");
    TORCH_CHECK_VALUE(tensor.dim() == 1 && tensor.size(0) == size && at::isFloatingType(tensor.scalar_type()),
                      name(key), " is ", tensor.sizes(), " of ", tensor.scalar_type(), ", [", size,
                      "] of a floating-point type is wanted");
    return finite(tensor.to(type), name(key));
  };
  const at::ScalarType type = bias_a.scalar_type();
  const auto scalar = [&](const char* key, bool wanted, float least) {
    const at::Tensor tensor = take(key);
    if (!tensor.defined() && !wanted) return tensor;
    TORCH_CHECK_VALUE(tensor.defined(), name(key), " is missing");
    TORCH_CHECK_VALUE(tensor.numel() == 1 && at::isFloatingType(tensor.scalar_type()), name(key), " is ",
                      tensor.sizes(), " of ", tensor.scalar_type(), ", one floating-point number is wanted");
    const at::Tensor value = tensor.reshape({}).to(at::kFloat);
    TORCH_CHECK_VALUE(std::isfinite(value.item<float>()) && value.item<float>() >= least, name(key), " is ",
                      value.item<float>());
    return value;
  };

  const bool has_scales = entries.count(prefix + "scale_a") + entries.count(prefix + "scale_w") > 0;
  const bool plain = traits_.bits == 1 && !has_scales;  // a CPP class: neither scales nor bias_a
  Staged s;
  s.bias_a = vector("bias_a", bias_a.size(0), !plain, type);
  if (!s.bias_a.defined()) s.bias_a = at::zeros_like(bias_a);
  s.scale_a = plain ? at::ones({}) : scalar("scale_a", true, -std::numeric_limits<float>::max());
  s.scale_w = plain ? at::ones({}) : scalar("scale_w", true, 0);
  s.eps = scalar("eps", false, 1e-30f);
  if (bias.defined()) s.bias = vector("bias", bias.size(0), true, type);
  if (channel_scale.defined()) s.channel_scale = vector("channel_scale", channel_scale.size(0), true, at::kFloat);
  s.prepared = s.scale_w.item<float>() != 1;  // BITorch Engine's value of a layer that nobody prepared

  s.weight = take("weight");
  const at::Tensor packed = take("qweight");
  TORCH_CHECK_VALUE(s.weight.defined() || packed.defined(), name("weight"), " (or '", prefix, "qweight') is missing");
  if (s.weight.defined()) {
    const bool is_float = at::isFloatingType(s.weight.scalar_type());
    TORCH_CHECK_VALUE(
        s.weight.sizes() == at::IntArrayRef(traits_.weight_shape) && (is_float || s.weight.scalar_type() == at::kChar),
        name("weight"), " is ", s.weight.sizes(), " of ", s.weight.scalar_type(), ", ",
        at::IntArrayRef(traits_.weight_shape), " of a floating-point type or of Char is wanted");
    if (traits_.bits == 4 && !is_float)
      TORCH_CHECK_VALUE(s.weight.ge(-8).logical_and_(s.weight.le(7)).all().item<bool>(), name("weight"),
                        " holds codes outside [-8, 7]");
    s.weight = (is_float ? finite(s.weight.to(type), name("weight")) : s.weight).contiguous();
    if (plain && is_float)  // as floats it would be scaled
      s.qweight = ops::pack_signs(std::exchange(s.weight, {}).flatten(1)).view(traits_.packed_shape);
    return s;
  }
  s.qweight = known_layout(packed, has_scales);
  TORCH_CHECK_VALUE(s.qweight.defined(), name("qweight"), " is ", packed.sizes(), " of ", packed.scalar_type(),
                    ", which is no layout of a ", traits_.kind, " with weight ", at::IntArrayRef(traits_.weight_shape),
                    "; ours is ", at::IntArrayRef(traits_.packed_shape), " of ", traits_.packed_type);
  return s;
}

void QuantLayer::take_state(const Staged& s) {
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

std::map<std::string, QuantLayer*> quant_layers(torch::nn::Module& module) {
  std::map<std::string, QuantLayer*> layers;
  if (auto* self = dynamic_cast<QuantLayer*>(&module)) layers[""] = self;
  for (const auto& item : module.named_modules(/*name_prefix=*/"", /*include_self=*/false))
    if (auto* layer = dynamic_cast<QuantLayer*>(item.value().get())) layers[item.key()] = layer;
  return layers;
}

void set_grad_mode(torch::nn::Module& module, ops::GradMode mode) {
  for (const auto& [name, layer] : quant_layers(module)) layer->set_grad_mode(mode);
}

void set_compat(torch::nn::Module& module, Compat compat) {
  for (const auto& [name, layer] : quant_layers(module)) layer->set_compat(compat);
}

void set_step_size_guard(torch::nn::Module& module, StepSizeGuard guard) {
  check_floor(guard);
  for (const auto& [name, layer] : quant_layers(module)) layer->set_step_size_guard(guard);
}

void prepare_layers(torch::nn::Module& module) {
  for (const auto& [name, layer] : quant_layers(module)) layer->prepare_params();
}

void pack_layers(torch::nn::Module& module, bool qweight_only) {
  for (const auto& [name, layer] : quant_layers(module)) layer->generate_quantized_weight(qweight_only);
}

}  // namespace bie::layers
