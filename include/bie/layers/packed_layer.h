// A layer whose weight is always packed, and that weight as an optimizer sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bie/layers/quant_layer.h"
#include "bie/ops/weight_only.h"

namespace bie::layers {

/// A packed weight, shared by its layer and its optimizer. Its gradient is that of the weight as floats; it comes to a
/// leaf of that shape, the anchor, because autograd has none of integers.
class PackedWeight {
 public:
  enum class Form {
    codes,      ///< [words, n] of a linear layer: of [k, n]
    code_rows,  ///< [N, words] of a table: of [N, D]
    sign_rows   ///< [N, bytes] of a table: of [N, D]
  };

  PackedWeight(Form form, std::vector<std::int64_t> shape) : form_(form), shape_(std::move(shape)) {}

  Form form() const { return form_; }
  /// Shape of the weight as floats.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  /// The words, with the tensors that dequantize them; for signs qweight alone.
  ops::CodedWeightTensors tensors;

  /// The leaf that an operator is given in training; its values are never read.
  at::Tensor anchor();
  /// Added up over backward passes; sparse of the rows that were looked up. Undefined where there is none.
  at::Tensor gradient() const { return anchor_.defined() ? anchor_.grad() : at::Tensor(); }
  void set_gradient(const at::Tensor& gradient);
  /// Whether the layer ran in training since this was last set to false.
  bool awaits_gradient = false;
  /// Call after a change of the device.
  void forget_anchor() { anchor_ = at::Tensor(); }

 private:
  Form form_;
  std::vector<std::int64_t> shape_;
  at::Tensor anchor_;
};

/// The weight trains unless told otherwise: bie::optim::DiodeMix steps its codes or signs by its gradient.
class PackedLayer : public QuantLayer {
 public:
  at::Tensor qweight;

  void prepare_params() override {}
  void generate_quantized_weight(bool /*qweight_only*/ = false) override {}
  void set_weight_trainable(bool trainable) override { trainable_ = trainable; }
  bool weight_trainable() const override { return trainable_; }
  const std::shared_ptr<PackedWeight>& packed_weight() const { return weight_; }
  /// Gradient of the weight as floats; see PackedWeight::gradient.
  at::Tensor weight_gradient() const { return weight_->gradient(); }

  StateDict state(bool packed) const override;
  const std::vector<std::int64_t>& weight_shape() const override { return shape_; }
  const char* weight_form() const override { return "packed"; }

 protected:
  /// `shape` is [out, in] of a linear layer, [N, D] of a table.
  PackedLayer(PackedWeight::Form form, std::vector<std::int64_t> shape);

  /// Registers the words and hands them to the shared weight.
  void set_words(const at::Tensor& words);
  /// The leaf that the weight's gradient comes to; undefined where none is wanted.
  at::Tensor anchor();
  void moved(torch::Device /*device*/) override { weight_->forget_anchor(); }

 private:
  std::vector<std::int64_t> shape_;
  bool trainable_ = true;
  std::shared_ptr<PackedWeight> weight_;
};

}  // namespace bie::layers
