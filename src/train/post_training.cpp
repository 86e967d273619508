#include "bie/train/post_training.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/round.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "bie/layers/nbit_layer.h"
#include "bie/layers/state_dict.h"
#include "models/model_plan.h"
#include "train/common_tensors.h"

namespace bie::train {
namespace {

/// A BatchNorm's tensors.
struct Norm {
  at::Tensor weight, bias, mean, variance;

  explicit Norm(torch::nn::Module& module)
      : weight(module.named_parameters()["weight"]),
        bias(module.named_parameters()["bias"]),
        mean(module.named_buffers()["running_mean"]),
        variance(module.named_buffers()["running_var"]) {}

  /// y * gain() + offset() is what it does to y in evaluation.
  at::Tensor gain() const { return weight / (variance + norm_eps).sqrt(); }
  at::Tensor offset() const { return bias - mean * gain(); }
  /// Makes it the norm of y / ratio that yields what it yielded for y.
  void divide_input(const at::Tensor& ratio) const {
    const at::Tensor before = (variance + norm_eps).sqrt();
    mean.div_(ratio);
    variance.div_(ratio.square());
    weight.mul_(ratio * (variance + norm_eps).sqrt() / before);
  }
};

/// [out] along the axis of a weight, or of an output, that holds the channels.
at::Tensor along(const at::Tensor& channels, const at::Tensor& tensor, std::int64_t axis) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(tensor.dim()), 1);
  shape[static_cast<std::size_t>(axis)] = -1;
  return channels.view(shape);
}

/// Mean of every channel of an output, [batch, out] or [batch, out, height, width].
at::Tensor channel_means(const at::Tensor& y) { return y.dim() == 2 ? y.mean(0) : y.mean({0, 2, 3}); }

models::ModelConfig quantised_config(const models::ModelConfig& config, const PostTraining& o) {
  models::ModelConfig c = config;
  c.bits = o.bits;
  if (c.linear_bits != 0) c.linear_bits = o.bits;
  c.weights = models::WeightForm::usual;
  c.quantise_first = false;
  c.bits_of = o.bits_of;
  c.norm = config.norm && !o.fold;
  c.channel_scales = o.per_channel && (!c.norm || models::plan(c).back().bits < 32);  // where a layer is to have them
  return c;
}

void check(const models::Classifier& model, const at::Tensor& calibration, const PostTraining& o) {
  const models::ModelConfig& c = model.config();
  TORCH_CHECK_VALUE(model.quant_layers().empty(), "expected a float model, got a quantised one");
  TORCH_CHECK_VALUE(o.bits == 8 || o.bits == 4, "bits: expected 8 or 4, as 1 bit has to be trained, got ", o.bits);
  for (const auto& [name, bits] : o.bits_of)
    TORCH_CHECK_VALUE(bits != 1, "layer '", name, "' is to have 1 bit, which has to be trained");
  TORCH_CHECK_VALUE(c.norm || !o.fold, "the model has no BatchNorm to fold");
  TORCH_CHECK_VALUE(
      calibration.dim() == 4 && calibration.size(0) > 0 && calibration.sizes().slice(1) == at::IntArrayRef(c.image),
      "the calibration images are ", calibration.sizes(), ", the model wants ", at::IntArrayRef(c.image), " each");
}

/// Quantises the layers of one net, one after the other, as the float net meets their inputs.
class Converter {
 public:
  Converter(models::Classifier& from, models::Classifier& to, const PostTraining& options)
      : from_(from.products()), to_(to.products()), options_(options) {}

  /// Float layers whose norm is folded take it in.
  void fold_float_layers() {
    for (std::size_t i = 0; i < to_.size(); ++i) {
      if (!from_[i].norm || to_[i].norm || quantised(i) != nullptr) continue;
      const Norm norm(*from_[i].norm);
      at::Tensor weight = tensor_of(*to_[i].layer, "weight"), bias = tensor_of(*to_[i].layer, "bias");
      const at::Tensor source = tensor_of(*from_[i].layer, "weight");
      weight.copy_(source * along(norm.gain(), source, 0));
      bias.copy_(norm.offset());
    }
  }

  void convert(const std::string& name, const at::Tensor& x) {
    std::size_t i = 0;
    while (to_[i].name != name) ++i;
    layers::NbitLayer* const layer = quantised(i);
    if (layer == nullptr) return;
    const bool fold = from_[i].norm && !to_[i].norm;
    const int bits = layer->weight_bits();
    at::Tensor weight = tensor_of(*from_[i].layer, "weight"), bias = tensor_of(*from_[i].layer, "bias");
    if (fold) {
      const Norm norm(*from_[i].norm);
      weight = weight * along(norm.gain(), weight, 0);
      bias = norm.offset();
    }
    const at::Tensor wanted = product(x, weight, bias, *from_[i].layer);

    // Behind the layer the scales of its channels go into the norm, where there is one.
    const bool channels = options_.per_channel, in_norm = channels && to_[i].norm;
    at::Tensor steps = channels ? step_sizes(weight, bits, options_.rule, options_.percentile)
                                : at::full({1}, step_size(weight, bits, options_.rule, options_.percentile));
    const double scale_w = std::exp(steps.log().mean().item<double>());
    const double low = bits == 8 ? -128 : -8, high = bits == 8 ? 127 : 7;
    const at::Tensor codes = at::round(weight / along(steps, weight, 0)).clamp_(low, high).to(at::kChar);
    const at::Tensor ratio = steps / scale_w;
    const double scale_a = step_size(x, bits, options_.rule, options_.percentile);
    layer->set_codes(codes, at::full({}, scale_w));
    layer->scale_a.fill_(scale_a);
    layer->eval();
    if (layer->bias.defined()) layer->bias.copy_(bias);
    if (layer->channel_scale.defined()) layer->channel_scale.copy_(ratio);

    at::Tensor found = layer->forward(x);
    if (in_norm) found = found * along(ratio, found, 1);
    const at::Tensor shift = channel_means(found - wanted);
    if (to_[i].norm) {
      const Norm norm(*to_[i].norm);
      norm.mean.add_(shift);
      if (in_norm) norm.divide_input(ratio);
    } else {
      layer->bias.sub_(shift);
    }
    found = found - along(shift, found, 1);
    const at::Tensor beyond = (x < (low - 0.5) * scale_a).logical_or_(x > (high + 0.5) * scale_a);
    errors_.push_back({name, bits, scale_a, scale_w, beyond.to(at::kFloat).mean().item<double>(),
                       std::sqrt((found - wanted).square().mean().item<double>() /
                                 std::max(wanted.square().mean().item<double>(), 1e-30))});
  }

  std::vector<LayerError> errors() { return std::move(errors_); }

 private:
  layers::NbitLayer* quantised(std::size_t i) const { return dynamic_cast<layers::NbitLayer*>(to_[i].layer.get()); }

  static at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const torch::nn::Module& layer) {
    if (const auto* conv = dynamic_cast<const torch::nn::Conv2dImpl*>(&layer))
      return at::conv2d(x, weight, bias, conv->options.stride(),
                        *std::get<torch::ExpandingArray<2>>(conv->options.padding()));
    return at::linear(x, weight, bias);
  }

  std::vector<models::ProductLayer> from_, to_;
  const PostTraining& options_;
  std::vector<LayerError> errors_;
};

}  // namespace

PostTrained quantize(models::Classifier& model, const at::Tensor& calibration, const PostTraining& o) {
  check(model, calibration, o);
  const at::NoGradGuard no_grad;
  PostTrained result{models::make_model(quantised_config(model.config(), o)), {}};
  TORCH_CHECK_VALUE(!result.model->quant_layers().empty(), "no layer is to be quantised");
  model.eval();
  result.model->eval();
  copy_common(model, *result.model);
  Converter converter(model, *result.model, o);
  converter.fold_float_layers();
  model.set_probe([&](const std::string& name, const at::Tensor& x) { converter.convert(name, x); });
  const auto take_away = [&](void*) { model.set_probe({}); };
  const std::unique_ptr<void, decltype(take_away)> guard(&model, take_away);
  model.forward(calibration);
  result.layers = converter.errors();
  return result;
}

}  // namespace bie::train
