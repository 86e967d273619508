// What all quantised layers share: the activation's bias and step size, the forms of the weight, the kernel's panels.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bie/ops.h"

namespace bie::nn {

/// State (names are the state-dict keys of BITorch Engine 0.2.6):
///   weight   float, or int8 for a prepared binary layer; undefined once only qweight is kept
///   qweight  the packed weight, where it was asked for
///   bias_a   [in] zeros, learnable, added to the activation before it is quantised
///   scale_a  0-dim float32, learnable; 0 means that the first batch sets it
///   scale_w  0-dim float32, not learned
/// scale_a and scale_w stay float32 whatever `to` is asked for.
///
/// Training uses `weight`. Evaluation uses the packed form of the current weight: packed on first use, packed anew
/// when the weight changed (told by its address and version), forgotten by train(). A write through weight.data() in
/// evaluation cannot be seen: call repack().
class QuantLayer : public torch::nn::Module {
 public:
  at::Tensor weight, qweight, bias_a, scale_a, scale_w;

  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// Makes the weight ready for training; acts once, on a float weight.
  virtual void prepare_params() = 0;
  /// Packs the weight into `qweight` (and sets scale_w); with qweight_only the training weight is dropped.
  void generate_quantized_weight(bool qweight_only = false);
  /// Takes a packed weight, in place of any other form. A sentence if its shape or dtype is not the layer's.
  void set_quantized_weight_data(const at::Tensor& packed, const at::Tensor& weight_scale);
  /// weight in training, the packed form of the current weight in evaluation.
  at::Tensor opt_weight();
  /// The layer's tensors with its weight packed, as they are saved; the layer is not changed.
  std::map<std::string, at::Tensor> packed_state();
  /// Forgets every derived form of the weight.
  void repack();

  void train(bool on = true) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

  virtual int weight_bits() const = 0;
  /// Elements of the weight.
  std::int64_t weight_count() const { return weight_count_; }

 protected:
  struct Packed {
    at::Tensor qweight, scale_w;
  };

  QuantLayer(at::IntArrayRef weight_shape, at::IntArrayRef packed_shape, at::ScalarType packed_type);

  virtual Packed pack() const = 0;
  virtual at::Tensor prepack(const at::Tensor& packed) const = 0;
  /// First-batch scale (scale_a = c * mean|x|) and, in training, the floor of one hundredth of it that keeps a learned
  /// step size from crossing zero. A loaded scale has no floor. A batch whose features, along `axis`, are not the
  /// layer's is refused before it leaves a scale behind.
  void ready_activation(const at::Tensor& x, double c, std::int64_t axis);

  /// The weight, its scale and its panels as an operator wants them in this mode.
  struct Operand {
    at::Tensor weight, scale_w, panels, anchor;
  };
  Operand operand();

 private:
  struct Key {
    const void* data = nullptr;
    std::uint32_t version = 0;
    bool operator==(const Key& other) const { return data == other.data && version == other.version; }
  };
  static Key key_of(const at::Tensor& tensor);
  void refresh();

  std::vector<std::int64_t> packed_shape_;
  at::ScalarType packed_type_;
  std::int64_t weight_count_;
  Packed current_;  // packed form of the weight with key weight_key_, or of qweight alone
  Key weight_key_;
  at::Tensor panels_;  // of current_.qweight
  Key panels_key_;
  at::Tensor anchor_;
  bool scale_ready_ = false;
  float scale_floor_ = 0;
};

}  // namespace bie::nn
