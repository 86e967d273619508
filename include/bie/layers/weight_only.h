// Linear layers whose weight alone has few bits: the activation stays a float.
#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "bie/layers/packed_layer.h"
#include "bie/layers/panels.h"

namespace bie::layers {

/// y = x . W + bias, [..., in] to [..., out] in x's dtype; see ops::weight_only_linear. The keys of files are BITorch
/// Engine's. A new layer's weight is all zeros.
class CodedLinear : public PackedLayer {
 public:
  at::Tensor scales, zeros, bias;

  at::Tensor forward(const at::Tensor& x) override;
  /// W [in, out] in float32.
  at::Tensor open() const;
  /// Whether x becomes int8 codes first: ops::WeightOnlyLinearOptions.
  bool int8_activations() const { return int8_activations_; }
  void set_int8_activations(bool on) {
    int8_activations_ = on;
    repack();
  }
  void repack() override { panels_.forget(); }
  std::int64_t derived_bytes() const override { return panels_.bytes(); }
  void train(bool on = true) override;

 protected:
  /// Starts with zero words, scales of 1 and zeros of 0 for `groups` groups.
  CodedLinear(std::int64_t in, std::int64_t out, std::int64_t words, std::int64_t groups, bool with_bias);

  std::int64_t in_features() const { return weight_shape()[1]; }
  std::int64_t out_features() const { return weight_shape()[0]; }
  /// Factors of x's channels, or undefined.
  virtual at::Tensor channel_scale_of_x() const { return {}; }
  /// Throws unless a weight is there.
  virtual void check_weight() const {}

  std::vector<at::Tensor> float_scales() const override { return {scales, zeros}; }
  void moved(torch::Device device) override;
  /// The words, with the tensors that dequantize them.
  ops::CodedWeightTensors& coded() { return packed_weight()->tensors; }
  const ops::CodedWeightTensors& coded() const { return packed_weight()->tensors; }

 private:
  Panels panels_;
  bool int8_activations_ = false;
};

struct WeightOnlyLinearOptions {
  std::int64_t in_features, out_features;
  int bits = 4;                  ///< 1, 2, 3, 4, 5, 6 or 8
  std::int64_t group_size = 32;  ///< rows of k that share a scale; -1: all
  bool bias = false;
};

/// `bie.nn.MPQLinear` once prepared:
///   qweight  [ceil(in * bits / 32), out] int32
///   g_idx    [in] int32, the group of each row
///   scales   [groups, out] float32
///   zeros    [groups, out] float32: W = scales * q - zeros; or `qzeros` int32, whole ones as GPTQ packs them, where a
///            file has them
///   bias     [out]
class WeightOnlyLinearImpl : public CodedLinear {
 public:
  at::Tensor g_idx, qzeros;

  explicit WeightOnlyLinearImpl(const WeightOnlyLinearOptions& options);
  /// Takes a float weight [out, in], each code rounded to the nearest; ops::weight_only_ranges says of which scales.
  /// @throws c10::ValueError for another shape or dtype, NaN and infinity.
  void set_weight_data(const at::Tensor& data);
  StateDict state(bool packed) const override;
  Take check_state(StateDict& entries, const std::string& prefix) override;

  const char* kind() const override { return "WeightOnlyLinear"; }
  int weight_bits() const override { return options_.bits; }
  void pretty_print(std::ostream& stream) const override;

 private:
  void moved(torch::Device device) override;
  void set_packed_zeros(const at::Tensor& packed);

  WeightOnlyLinearOptions options_;
};
TORCH_MODULE(WeightOnlyLinear);

struct MBWQLinearOptions {
  std::int64_t in_features, out_features;
  int bits = 4;                  ///< 2 or 4, of all rows; 0: rows of several widths, as a file's table says
  std::int64_t group_size = 32;  ///< packed rows that share a scale, where all have one width; -1: all
  bool bias = false;
};

/// `bie.nn.MBWQLinear`: y = (x * channel_scale) . W + bias, W[q_perm[i], c] = q[i, c] * scales[g, c] - zeros[g, c].
///   qweight        [words, out] int32
///   q_perm         [in] int16, read as unsigned: the feature of each packed row; all zero: none are moved
///   channel_scale  [1, 1, in] float32
///   scales, zeros  [groups, out] float32
///   q_groups       [2 * groups] int16 with bits = 0: ops::mixed_rows
///   bias           [out]
/// It takes its weight from a file, which says how many words and groups there are with bits = 0.
class MBWQLinearImpl : public CodedLinear {
 public:
  at::Tensor q_perm, channel_scale, q_groups;

  explicit MBWQLinearImpl(const MBWQLinearOptions& options);
  Take check_state(StateDict& entries, const std::string& prefix) override;

  const char* kind() const override { return "MBWQLinear"; }
  /// The greatest width of a row.
  int weight_bits() const override;
  void pretty_print(std::ostream& stream) const override;

 private:
  at::Tensor channel_scale_of_x() const override { return channel_scale; }
  void check_weight() const override;
  std::vector<at::Tensor> float_scales() const override { return {scales, zeros, channel_scale}; }
  void moved(torch::Device device) override;
  bool is_mixed() const { return options_.bits == 0; }

  MBWQLinearOptions options_;
};
TORCH_MODULE(MBWQLinear);

}  // namespace bie::layers
