// Base of the layers of integer products: a weight of signs or codes with one scale, times a quantised activation.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "bie/layers/activation_quantizer.h"
#include "bie/layers/quant_layer.h"
#include "bie/layers/seen.h"

namespace bie::layers {

/// State besides that of ActivationQuantizer (names are the state-dict keys of BITorch Engine 0.2.6):
///   weight   float, or int8 once prepared for an integer optimizer; undefined once only qweight is kept
///   qweight  the packed weight, where it was asked for
///   scale_w  0-dim float32, not learned
///   bias     [out] added to the output, where the layer was made with one (ours: BITorch Engine has none)
///   channel_scale  [out] float32, the output is multiplied by it before the bias, where the layer was made with one
///            (ours): weight[o] = channel_scale[o] * scale_w * code. Not learned; ones until it is set.
///
/// Training uses `weight`. Evaluation uses the packed form of the current weight: packed on first use, packed anew
/// when the weight is another tensor or was changed (told by its version), forgotten by train(). A write through
/// weight.data() in evaluation cannot be seen: call repack(). A layer's own tensors are ordinary ones, also where it is
/// made, loaded or first trained in inference mode.
class IntegerLayer : public QuantLayer, public ActivationQuantizer {
 public:
  at::Tensor weight, qweight, scale_w, bias, channel_scale;

  /// Replaces the weight by a float one of the layer's shape and prepares it. Where there is a channel_scale it is
  /// split (ops::split_channels). A DiodeMix that has stepped keeps the old weight's moments: make a new one.
  /// @throws c10::ValueError for another shape or dtype, NaN and infinity.
  void set_weight_data(const at::Tensor& data);
  /// Also sets scale_w.
  void generate_quantized_weight(bool qweight_only = false) override;
  /// Takes a packed weight, in place of any other form. Throws if its shape or dtype is not the layer's. scale_w stays
  /// where `weight_scale` is undefined.
  void set_quantized_weight_data(const at::Tensor& packed, const at::Tensor& weight_scale = {});
  /// weight in training, the packed form of the current weight in evaluation.
  at::Tensor opt_weight();
  void repack() override;

  /// In training scale_a is what the next forward pass computes with: an optimizer may have left it below its floor.
  StateDict state(bool packed) const override;
  /// Takes float, int8, or packed in any layout that BITorch Engine or we write; the float weight of a CPP class, which
  /// has no scales, as its signs, packed. A loaded scale has no guard.
  Take check_state(StateDict& entries, const std::string& prefix) override;

  void set_weight_trainable(bool trainable) override;
  bool weight_trainable() const override { return weight_trainable_; }

  void train(bool on = true) override;
  /// One line: BinaryLinear(1000, 37, int8 weight).
  void pretty_print(std::ostream& stream) const override;

  const char* kind() const override { return traits_.kind; }
  int weight_bits() const override { return traits_.bits; }
  const std::vector<std::int64_t>& weight_shape() const override { return traits_.weight_shape; }
  const char* weight_form() const override;
  std::int64_t derived_bytes() const override;

 protected:
  struct Packed {
    at::Tensor qweight, scale_w;
  };
  /// Traits of one kind of layer.
  struct Traits {
    const char* kind;  ///< "Q4Linear"
    int bits;          ///< of the weight
    int activation_bits;
    std::vector<std::int64_t> weight_shape;
    std::int64_t feature_axis;  ///< of x
    bool latent;                ///< the weight is trained as a float
    bool has_bias;
    std::string geometry = {};  ///< further sizes for the description, ", stride=[2, 2]"
    bool has_channel_scale = false;
    std::int64_t groups = 1;  ///< of a convolution: x has groups times the channels of the weight
  };

  explicit IntegerLayer(Traits traits);

  virtual Packed pack() const = 0;
  virtual at::Tensor prepack(const at::Tensor& packed) const = 0;
  /// Whether scale_w belongs to the float weight that was put in place.
  virtual void set_prepared(bool /*prepared*/) {}
  /// The scale that a float weight trains with; undefined where the operator computes it.
  virtual at::Tensor float_weight_scale() const = 0;

  const Traits& traits() const { return traits_; }
  bool latent() const { return traits_.latent; }

  /// The activation's operands, see ActivationQuantizer::activation.
  Activation activation(const at::Tensor& x) { return ActivationQuantizer::activation(x, is_training()); }

  /// Operands of an operator in this mode: the weight, its scale and its panels.
  struct Operand {
    at::Tensor weight, scale_w, panels, anchor;
  };
  Operand operand();
  /// y * channel_scale + bias, along the feature axis, of a product y.
  at::Tensor finish(const at::Tensor& y) const;
  /// Puts integer codes or signs in place of a float weight.
  void make_integer(const at::Tensor& codes, const at::Tensor& scale);

 private:
  struct Staged;

  std::vector<at::Tensor> float_scales() const override { return {scale_a, scale_w, eps, channel_scale}; }
  void moved(torch::Device device) override;
  void take_state(const Staged& staged);
  void refresh();
  void set_weight(const at::Tensor& value);
  void set_qweight(const at::Tensor& value);

  Traits traits_;
  bool weight_trainable_ = true;
  std::mutex derived_;  // what evaluation derives: the next four
  Packed current_;      // packed form of the weight weight_seen_, or of qweight alone
  Seen weight_seen_;
  at::Tensor panels_;  // of current_.qweight
  Seen panels_seen_;
  at::Tensor anchor_;
};

}  // namespace bie::layers
