// Layers whose weight alone has few bits: the activation of a linear stays a float, an embedding has none.
#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "bie/layers/quant_layer.h"
#include "bie/layers/seen.h"
#include "bie/ops/weight_only.h"

namespace bie::layers {

/// A weight that is always packed. It is not trained unless asked for: `weight_gradient` is what an optimizer of codes
/// steps by (bie.optim.DiodeMix in Python; bie::optim::DiodeMix leaves these layers alone).
class PackedLayer : public QuantLayer {
 public:
  at::Tensor qweight;

  void prepare_params() override {}
  void generate_quantized_weight(bool /*qweight_only*/ = false) override {}
  void set_weight_trainable(bool trainable) override { trainable_ = trainable; }
  bool weight_trainable() const override { return trainable_; }
  /// Of the weight as floats, added up over backward passes; sparse of an embedding. Undefined where there is none.
  at::Tensor weight_gradient() const { return anchor_.defined() ? anchor_.grad() : at::Tensor(); }

  StateDict state(bool packed) const override;
  const std::vector<std::int64_t>& weight_shape() const override { return shape_; }
  const char* weight_form() const override { return "packed"; }

 protected:
  explicit PackedLayer(std::vector<std::int64_t> shape);

  /// The leaf that the weight's gradient comes to; undefined where none is wanted.
  at::Tensor anchor(at::IntArrayRef sizes);
  void moved(torch::Device /*device*/) override { anchor_ = at::Tensor(); }

 private:
  std::vector<std::int64_t> shape_;
  bool trainable_ = false;
  at::Tensor anchor_;
};

struct WeightOnlyLinearOptions {
  std::int64_t in_features, out_features;
  int bits = 4;                  ///< 1, 2, 3, 4, 5, 6 or 8
  std::int64_t group_size = 32;  ///< rows of k that share a scale; -1: all
  bool bias = false;
};

/// y = x . W + bias, [..., in] to [..., out] in x's dtype; see ops::weight_only_linear.
///   qweight  [ceil(in * bits / 32), out] int32
///   g_idx    [in] int32, the group of each row
///   scales   [groups, out] float32
///   zeros    [groups, out] float32: W = scales * q - zeros; or `qzeros` as GPTQ packs whole ones, where a file has
///   them bias     [out]
/// Keys and layouts are BITorch Engine's `MPQLinear` once prepared, and GPTQ's. A new layer's weight is all zeros.
class WeightOnlyLinearImpl : public PackedLayer {
 public:
  at::Tensor g_idx, scales, zeros, qzeros, bias;

  explicit WeightOnlyLinearImpl(const WeightOnlyLinearOptions& options);
  at::Tensor forward(const at::Tensor& x) override;
  /// Takes a float weight [out, in], each code rounded to the nearest; ops::weight_only_ranges says of which scales.
  /// @throws c10::ValueError for another shape or dtype, NaN and infinity.
  void set_weight_data(const at::Tensor& data);
  /// W [in, out] in float32.
  at::Tensor open() const;
  void repack() override;
  StateDict state(bool packed) const override;
  Take check_state(StateDict& entries, const std::string& prefix) override;

  const char* kind() const override { return "WeightOnlyLinear"; }
  int weight_bits() const override { return options_.bits; }
  std::int64_t derived_bytes() const override;
  void train(bool on = true) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  std::vector<at::Tensor> float_scales() const override { return {scales, zeros}; }
  void moved(torch::Device device) override;
  ops::CodedWeightTensors coded() const;

  WeightOnlyLinearOptions options_;
  std::mutex derived_;  // the next two
  at::Tensor panels_;
  std::vector<Seen> panels_seen_;
};
TORCH_MODULE(WeightOnlyLinear);

struct BinaryEmbeddingOptions {
  std::int64_t num_embeddings, embedding_dim;
  std::optional<std::int64_t> padding_idx = {};  ///< outputs 0; from the end where negative
};

/// Indices of any shape to [..., embedding_dim] float32 of +-scale_w[row]; see ops::binary_embedding.
///   qweight  [N, ceil(D/8)] uint8
///   scale_w  [N, 1] float32
class BinaryEmbeddingImpl : public PackedLayer {
 public:
  at::Tensor scale_w;

  explicit BinaryEmbeddingImpl(const BinaryEmbeddingOptions& options);
  at::Tensor forward(const at::Tensor& indices) override;
  /// The signs of a float table [N, D] less its mean, and the mean size of each row; rows are padded with -1.
  void set_weight_data(const at::Tensor& data);
  void repack() override {}
  Take check_state(StateDict& entries, const std::string& prefix) override;

  const char* kind() const override { return "BinaryEmbedding"; }
  int weight_bits() const override { return 1; }
  std::int64_t derived_bytes() const override { return 0; }
  void pretty_print(std::ostream& stream) const override;

 private:
  std::vector<at::Tensor> float_scales() const override { return {scale_w}; }

  BinaryEmbeddingOptions options_;
};
TORCH_MODULE(BinaryEmbedding);

}  // namespace bie::layers
