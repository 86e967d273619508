#include "bie/layers/nbit_layer.h"

#include <c10/util/Exception.h>

#include <tuple>

#include "layers/ordinary_tensors.h"
#include "ops/quantize/quantizers.h"

namespace bie::layers {

double NbitLayer::smallest_step() const {
  const std::lock_guard lock(eps_);
  if (!(eps_seen_ == eps)) {
    eps_value_ = eps.item<float>();
    eps_seen_ = Seen(eps);
  }
  return eps_value_;
}

double NbitLayer::first_batch_factor() const {
  return weight_bits() == 8 || compat() == Compat::bie_0_2_6 ? ops::q8_range.mean_to_step : ops::q4_range.mean_to_step;
}

/// The scale of a float weight: 2 * mean|w| / 11.269 at 8 bits, max(2 * mean|w| / 5.6345, eps) at 4 unless it has one.
at::Tensor NbitLayer::weight_scale() const {
  if (weight_bits() == 4 && prepared_) return scale_w;
  if (weight_bits() == 8) return std::get<1>(ops::q8_quantize(weight));
  return std::get<1>(ops::q4_quantize(weight)).clamp_min_(smallest_step());
}

void NbitLayer::prepare_params() {
  if (!weight.defined() || !at::isFloatingType(weight.scalar_type()) || (latent() && prepared_)) return;
  const OrdinaryTensors ordinary;
  if (!latent()) {
    const at::Tensor scale = weight_scale();
    const double least = smallest_step();
    make_integer(std::get<0>(weight_bits() == 8 ? ops::q8_quantize(weight, scale, least)
                                                : ops::q4_quantize(weight, scale, least)),
                 scale);
  } else if (weight_bits() == 4) {
    scale_w.copy_(weight_scale());
  }
  prepared_ = true;
}

void NbitLayer::renew_weight_scale() {
  if (weight_bits() != 4 || !prepared_ || !weight.defined() || !at::isFloatingType(weight.scalar_type())) return;
  const OrdinaryTensors ordinary;
  prepared_ = false;
  scale_w.copy_(weight_scale());
  prepared_ = true;
  repack();
}

at::Tensor NbitLayer::packed(const at::Tensor& codes) const {
  const at::Tensor rows = weight_bits() == 4 ? ops::pack_int4(codes.reshape({weight_shape()[0], -1})) : codes;
  return rows.view(traits().packed_shape);
}

void NbitLayer::set_codes(const at::Tensor& codes, const at::Tensor& scale) {
  TORCH_CHECK_VALUE(codes.sizes() == at::IntArrayRef(weight_shape()) && codes.scalar_type() == at::kChar,
                    "the codes are ", codes.sizes(), " of ", codes.scalar_type(), ", ", at::IntArrayRef(weight_shape()),
                    " of Char is wanted");
  set_quantized_weight_data(packed(codes.contiguous()), scale);
}

void renew_weight_scales(torch::nn::Module& module) {
  for (const auto& [name, layer] : quant_layers(module))
    if (auto* nbit = dynamic_cast<NbitLayer*>(layer)) nbit->renew_weight_scale();
}

at::Tensor NbitLayer::float_weight_scale() const { return weight_bits() == 8 ? at::Tensor() : scale_w; }

QuantLayer::Packed NbitLayer::pack() const {
  const bool is_float = at::isFloatingType(weight.scalar_type());
  const double least = smallest_step();
  Packed form{weight, scale_w};
  if (is_float) {
    const at::Tensor scale = weight_scale();  // comes back, or NaN on CUDA where the weight is not finite
    std::tie(form.qweight, form.scale_w) =
        weight_bits() == 8 ? ops::q8_quantize(weight, scale, least) : ops::q4_quantize(weight, scale, least);
  }
  form.qweight = packed(form.qweight);
  return form;
}

at::Tensor NbitLayer::known_layout(const at::Tensor& packed, bool has_scales) const {
  return weight_shape().size() == 4 ? known_filter_layout(packed) : QuantLayer::known_layout(packed, has_scales);
}

}  // namespace bie::layers
