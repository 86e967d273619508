#include "bie/layers/binary_layer.h"

#include "layers/ordinary_tensors.h"

namespace bie::layers {

void BinaryLayer::prepare_params() {
  if (latent() || !weight.defined() || !at::isFloatingType(weight.scalar_type())) return;
  const OrdinaryTensors ordinary;
  const auto [q, scale] = ops::binary_init(weight);
  make_integer(q, scale);
}

/// What prepare_params would give the weight.
at::Tensor BinaryLayer::float_weight_scale() const { return weight.detach().abs().mean(at::kDouble).to(at::kFloat); }

QuantLayer::Packed BinaryLayer::pack() const {
  return {ops::pack_signs(weight.flatten(1)).view(traits().packed_shape),
          weight.scalar_type() == at::kChar ? scale_w : float_weight_scale()};
}

}  // namespace bie::layers
