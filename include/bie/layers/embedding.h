// Embeddings whose rows have few bits, and the linear layer that shares a table.
#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bie/layers/packed_layer.h"
#include "bie/layers/panels.h"

namespace bie::layers {

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

struct WeightOnlyEmbeddingOptions {
  std::int64_t num_embeddings, embedding_dim;
  int bits = 4;                                  ///< 1, 2, 3, 4, 5, 6 or 8
  std::int64_t group_size = 32;                  ///< elements of a row that share a scale; -1: all
  std::optional<std::int64_t> padding_idx = {};  ///< has no gradient; from the end where negative
};

/// `bie.nn.WeightOnlyEmbedding`: indices of any shape to [..., D] float32, y[..., d] = q[row, d] * scales[row, g] -
/// zeros[row, g].
///   qweight        [N, ceil(D * bits / 32)] int32
///   scales, zeros  [N, ceil(D / group_size)] float32
/// A new table is all zeros.
class WeightOnlyEmbeddingImpl : public PackedLayer {
 public:
  at::Tensor scales, zeros;

  explicit WeightOnlyEmbeddingImpl(const WeightOnlyEmbeddingOptions& options);
  at::Tensor forward(const at::Tensor& indices) override;
  /// Takes a float table [N, D], each code rounded to the nearest as WeightOnlyLinear does.
  void set_weight_data(const at::Tensor& data);
  /// W [N, D] in float32.
  at::Tensor open() const;
  void repack() override { panels_.forget(); }
  /// Whether its TiedHead quantises x to int8 first, see ops::WeightOnlyLinearOptions.
  bool int8_activations() const { return int8_activations_; }
  void set_int8_activations(bool on) {
    int8_activations_ = on;
    repack();
  }
  void train(bool on = true) override;
  Take check_state(StateDict& entries, const std::string& prefix) override;

  const char* kind() const override { return "WeightOnlyEmbedding"; }
  int weight_bits() const override { return options_.bits; }
  /// The panels of a TiedHead that ran in evaluation.
  std::int64_t derived_bytes() const override { return panels_.bytes(); }
  void pretty_print(std::ostream& stream) const override;

 private:
  friend class TiedHeadImpl;
  std::vector<at::Tensor> float_scales() const override { return {scales, zeros}; }
  void moved(torch::Device device) override;
  /// The table as the weight [D, N] of a linear layer.
  ops::CodedWeightTensors columns() const;

  WeightOnlyEmbeddingOptions options_;
  Panels panels_;
  bool int8_activations_ = false;
};
TORCH_MODULE(WeightOnlyEmbedding);

/// y = x . W^T, [..., D] to [..., N], over the table of a WeightOnlyEmbedding, as language models tie them. The tensors
/// are the embedding's and stand in its state alone; in training both add to the one gradient, which is dense then.
class TiedHeadImpl : public torch::nn::Module {
 public:
  explicit TiedHeadImpl(WeightOnlyEmbedding table) : table_(table.ptr()) {}
  at::Tensor forward(const at::Tensor& x);
  void pretty_print(std::ostream& stream) const override;

 private:
  std::shared_ptr<WeightOnlyEmbeddingImpl> table_;
};
TORCH_MODULE(TiedHead);

}  // namespace bie::layers
