// Base of the 8- and 4-bit layers: how their weight is scaled, coded and packed.
#pragma once

#include "bie/layers/integer_layer.h"

namespace bie::layers {

/// A latent weight stays float and is quantised in each training forward: at 8 bits with a scale taken anew each time,
/// at 4 bits with the one that prepare_params fixed, scale_w = max(2 * mean|w| / 5.6345, eps), or that came with it
/// from a file. A layer that is not latent holds int8 codes once prepared, w = code * scale_w, and DiodeMix trains the
/// codes. An unprepared layer prepares itself on its first training forward.
class NbitLayer : public IntegerLayer {
 public:
  void prepare_params() override;
  /// Gives a prepared float 4-bit weight the scale of its present values. Other weights stay as they are: at 8 bits
  /// each forward pass does it, and DiodeMix renews the scale of codes, which then have to move.
  void renew_weight_scale();
  /// Takes int8 codes of the weight's shape, w = code * scale, packed in place of any other form.
  void set_codes(const at::Tensor& codes, const at::Tensor& scale);

 protected:
  explicit NbitLayer(Traits traits) : IntegerLayer(std::move(traits)) {}

  Packed pack() const override;
  void set_prepared(bool prepared) override { prepared_ = prepared; }
  double first_batch_factor() const override;
  at::Tensor float_weight_scale() const override;

 private:
  /// Undefined where the scale is taken anew from the weight.
  at::Tensor fixed_scale() const;

  bool prepared_ = false;  // at 4 bits scale_w is the float weight's
};

/// renew_weight_scale of every 4-bit layer inside a module.
void renew_weight_scales(torch::nn::Module& module);

}  // namespace bie::layers
