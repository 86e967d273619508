#include "bie/layers/binary_layer.h"

#include "bie/ops/weight_rules.h"
#include "layers/ordinary_tensors.h"

namespace bie::layers {

void BinaryLayer::prepare_params() {
  if (latent() || !weight.defined() || !at::isFloatingType(weight.scalar_type())) return;
  const OrdinaryTensors ordinary;
  const auto [q, scale] = ops::prepare_weight(weight, 1);
  make_integer(q, scale);
}

/// The scale that prepare_params would give the weight.
at::Tensor BinaryLayer::float_weight_scale() const { return ops::weight_scale(weight, 1); }

IntegerLayer::Packed BinaryLayer::pack() const {
  const auto [packed, scale] = ops::pack_weight(weight, 1, scale_w);
  return {packed, scale};
}

}  // namespace bie::layers
