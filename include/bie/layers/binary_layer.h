// Base of the 1-bit layers: how their weight is scaled, prepared and packed.
#pragma once

#include "bie/layers/integer_layer.h"

namespace bie::layers {

/// A weight is int8 once prepared, trained by DiodeMix, with scale_w = mean|weight|; a latent one stays float and has
/// the scale of its present values. An unprepared layer prepares itself on its first training forward.
class BinaryLayer : public IntegerLayer {
 public:
  void prepare_params() override;

 protected:
  /// @param symmetric  the first batch sets scale_a to 2 * mean|x|; 4 * mean|x| if not.
  BinaryLayer(Traits traits, bool symmetric) : IntegerLayer(std::move(traits)), symmetric_(symmetric) {}

  Packed pack() const override;
  double first_batch_factor() const override { return symmetric_ ? 2 : 4; }
  at::Tensor float_weight_scale() const override;

 private:
  bool symmetric_;
};

}  // namespace bie::layers
