#include "bie/models/net_export.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <cstring>

#include "bie/formats/class_names.h"
#include "bie/formats/error.h"
#include "bie/kernels/code_tail.h"
#include "models/blocks.h"

namespace bie::models {
namespace {

using runtime::NetBuilder, runtime::Symbol;

std::vector<float> floats_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor dense = tensor.detach().cpu().to(at::kFloat).contiguous();
  const float* const data = dense.const_data_ptr<float>();
  return {data, data + dense.numel()};
}

std::vector<std::uint8_t> bytes_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().cpu().contiguous();
  const auto* const data = static_cast<const std::uint8_t*>(dense.const_data_ptr());
  return {data, data + dense.nbytes()};
}

runtime::WindowNumbers window_of(const PlannedLayer& l) {
  return {.out_channels = l.out,
          .kernel = {l.kernel, l.kernel},
          .stride = {l.stride, l.stride},
          .padding = {l.padding, l.padding}};
}

bool all_zero(const std::vector<float>& numbers) {
  for (const float number : numbers)
    if (number != 0) return false;
  return true;
}

/// A layer's weight with the scales that the operators derive (ops/backend/operands.h).
runtime::CodedWeight coded_weight(const layers::IntegerLayer& layer, const std::string& name) {
  const layers::StateDict state = layer.state(/*packed=*/true);
  const auto number = [&](const char* key) { return state.at(key).item<float>(); };
  const float scale_a = number("scale_a");
  TORCH_CHECK_VALUE(scale_a != 0, "layer '", name, "' has no step size yet: the model was not trained");
  const float eps = state.contains("eps") ? number("eps") : 1;
  runtime::CodedWeight weight{layer.weight_bits(),
                              layer.weight_bits() == 1 ? 1
                              : scale_a > eps          ? scale_a
                                                       : eps,
                              scale_a * number("scale_w"), bytes_of(state.at("qweight")),
                              floats_of(state.at("bias_a"))};
  if (all_zero(weight.bias)) weight.bias.clear();
  return weight;
}

template <class Impl>
bool read_numbers(const torch::nn::Module& module, std::vector<float>* scale, std::vector<float>* shift) {
  const auto* norm = dynamic_cast<const Impl*>(&module);
  if (norm == nullptr) return false;
  const std::vector<float> mean = floats_of(norm->running_mean), var = floats_of(norm->running_var),
                           weight = floats_of(norm->weight), bias = floats_of(norm->bias);
  scale->resize(mean.size());
  shift->resize(mean.size());
  kernels::norm_numbers(static_cast<std::int64_t>(mean.size()), mean.data(), var.data(),
                        weight.empty() ? nullptr : weight.data(), bias.empty() ? nullptr : bias.data(),
                        static_cast<float>(norm->options.eps()), scale->data(), shift->data());
  return true;
}

/// Scale and shift of a BatchNorm; x * 1 + 0 if there is none, as in block_tail.
runtime::TailNumbers tail_numbers(const torch::nn::AnyModule& norm, std::int64_t channels) {
  runtime::TailNumbers numbers;
  if (norm.is_empty()) {
    numbers.shift.assign(static_cast<std::size_t>(channels), 0.0f);
    return numbers;
  }
  const std::shared_ptr<torch::nn::Module> module = norm.ptr();
  TORCH_CHECK_VALUE(read_numbers<torch::nn::BatchNorm1dImpl>(*module, &numbers.scale, &numbers.shift) ||
                        read_numbers<torch::nn::BatchNorm2dImpl>(*module, &numbers.scale, &numbers.shift),
                    "a net has no node for a ", module->name());
  return numbers;
}

std::string listed(const std::vector<std::string>& texts, char between) {
  std::string text;
  for (std::size_t i = 0; i < texts.size(); ++i) text += (i == 0 ? "" : std::string(1, between)) + texts[i];
  return text;
}

}  // namespace

Symbol traced_norm(NetBuilder& net, const torch::nn::AnyModule& norm, Symbol x) {
  return norm.is_empty() ? x : net.tail(x, tail_numbers(norm, net.sizes(x)[0]));
}

Symbol Product::trace(NetBuilder& net, Symbol x) const {
  if (!low_) {
    if (layer_.is_conv()) {
      const auto& conv = *std::dynamic_pointer_cast<torch::nn::Conv2dImpl>(full_.ptr());
      return net.float_conv2d(x, window_of(layer_), floats_of(conv.weight), floats_of(conv.bias));
    }
    const auto& linear = *std::dynamic_pointer_cast<torch::nn::LinearImpl>(full_.ptr());
    return net.float_linear(x, layer_.out, floats_of(linear.weight), floats_of(linear.bias));
  }
  const runtime::CodedWeight weight = coded_weight(*low_, layer_.name);
  // Layers of signs pad with -1, as they are made by low_conv.
  const Symbol y = layer_.is_conv() ? net.conv2d(x, window_of(layer_), weight, layer_.bits == 1 ? -1 : 0)
                                    : net.linear(x, layer_.out, weight);
  if (!low_->bias.defined() && !low_->channel_scale.defined()) return y;
  runtime::TailNumbers numbers;
  numbers.scale = floats_of(low_->channel_scale);
  numbers.shift = floats_of(low_->bias);
  return net.tail(y, numbers);
}

Symbol Block::trace(NetBuilder& net, Symbol x, std::optional<Symbol> shortcut, std::int64_t pool) const {
  const Symbol product = product_->trace(net, traced_norm(net, signs_norm_, x));
  runtime::TailNumbers numbers = tail_numbers(norm_, net.sizes(product)[0]);
  numbers.pool = pool;
  if (act_ == Activation::relu) numbers.activation = runtime::NetActivation::relu;
  if (act_ == Activation::prelu) {
    numbers.activation = runtime::NetActivation::prelu;
    numbers.slope = prelu_->weight.item<float>();
  }
  return shortcut ? net.tail(product, numbers, *shortcut) : net.tail(product, numbers);
}

formats::NetFile exported_net(Classifier& model, bool folds) {
  const at::NoGradGuard no_grad;
  const ModelConfig& c = model.config();
  NetBuilder net;
  Symbol logits = model.trace(net);
  if (c.is_regression() &&
      c.table->version < 2) {  // answers in the table's unit; else the form's reader brings them there
    runtime::TailNumbers unit;
    unit.scale = {static_cast<float>(c.table->scale)};
    unit.shift = {static_cast<float>(c.table->mean)};
    logits = net.tail(logits, unit);
  }
  if (c.fit) net.set_metadata("fit", formats::name(*c.fit));
  if (c.table) net.set_metadata("table", formats::table_json(*c.table));
  net.set_metadata("arch", c.arch);
  net.set_metadata("bits", std::to_string(c.bits));
  for (const auto& [key, text] : formats::class_name_entries(c.class_names)) net.set_metadata(key, text);
  net.set_metadata("image",
                   listed({std::to_string(c.image[0]), std::to_string(c.image[1]), std::to_string(c.image[2])}, ','));
  net.set_metadata("input", c.takes_numbers() ? "numbers" : "unit");
  try {
    return net.finish({logits}, folds);
  } catch (const formats::Error& error) {
    TORCH_CHECK_VALUE(false, "the model cannot be exported: ", error.what());
  }
}

}  // namespace bie::models
