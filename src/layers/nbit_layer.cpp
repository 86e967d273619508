#include "bie/layers/nbit_layer.h"

#include <c10/util/Exception.h>

#include <tuple>

#include "bie/ops/weight_rules.h"
#include "layers/ordinary_tensors.h"
#include "ops/quantize/quantizers.h"

namespace bie::layers {

double NbitLayer::first_batch_factor() const {
  return activation_bits() == 8 || compat() == Compat::bie_0_2_6 ? ops::q8_range.mean_to_step
                                                                 : ops::q4_range.mean_to_step;
}

at::Tensor NbitLayer::fixed_scale() const { return weight_bits() == 4 && prepared_ ? scale_w : at::Tensor(); }

void NbitLayer::prepare_params() {
  if (!weight.defined() || !at::isFloatingType(weight.scalar_type()) || (latent() && prepared_)) return;
  const OrdinaryTensors ordinary;
  if (!latent()) {
    const auto [codes, scale] = ops::prepare_weight(weight, weight_bits(), fixed_scale(), smallest_step());
    make_integer(codes, scale);
  } else if (weight_bits() == 4) {
    scale_w.copy_(ops::weight_scale(weight, 4, smallest_step()));
  }
  prepared_ = true;
}

void NbitLayer::renew_weight_scale() {
  if (weight_bits() != 4 || !prepared_ || !weight.defined() || !at::isFloatingType(weight.scalar_type())) return;
  const OrdinaryTensors ordinary;
  scale_w.copy_(ops::weight_scale(weight, 4, smallest_step()));
  repack();
}

void NbitLayer::set_codes(const at::Tensor& codes, const at::Tensor& scale) {
  TORCH_CHECK_VALUE(codes.sizes() == at::IntArrayRef(weight_shape()) && codes.scalar_type() == at::kChar,
                    "the codes: expected ", at::IntArrayRef(weight_shape()), " of Char, got ", codes.sizes(), " of ",
                    codes.scalar_type());
  set_quantized_weight_data(std::get<0>(ops::pack_weight(codes.contiguous(), weight_bits(), scale)), scale);
}

void renew_weight_scales(torch::nn::Module& module) {
  for (const auto& [name, layer] : layers_of<NbitLayer>(module)) layer->renew_weight_scale();
}

at::Tensor NbitLayer::float_weight_scale() const { return weight_bits() == 8 ? at::Tensor() : scale_w; }

IntegerLayer::Packed NbitLayer::pack() const {
  const bool is_float = at::isFloatingType(weight.scalar_type());
  const auto [packed, scale] =
      ops::pack_weight(weight, weight_bits(), is_float ? fixed_scale() : scale_w, smallest_step());
  return {packed, scale};
}

}  // namespace bie::layers
