// Makes the graph of an exported net, node by node, and folds it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bie/formats/net_file.h"
#include "bie/kernels/functions.h"
#include "bie/kernels/planes.h"
#include "bie/runtime/net_ops.h"

namespace bie::runtime {

/// A value of the graph.
using Symbol = std::uint32_t;

/// A square or other window; {height, width} each.
struct WindowNumbers {
  std::int64_t out_channels;
  std::array<std::int64_t, 2> kernel, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
};

/// Geometry of a pool; `border` is top, left, bottom, right.
struct PoolNumbers {
  std::array<std::int64_t, 2> kernel, stride;
  std::array<std::int64_t, 4> border{0, 0, 0, 0};
};

/// A weight of signs or codes in the checkpoint layout, and how its activation becomes codes.
struct CodedWeight {
  int bits;
  float step, scale;  ///< of the activation's quantiser, and of the product
  std::vector<std::uint8_t> weight;
  std::vector<float> bias;  ///< of the activation, one per feature or channel; empty: none
};

/// act(x * scale + shift + add), pooled.
struct TailNumbers {
  std::vector<float> scale, shift;  ///< one per channel; empty: none
  NetActivation activation = NetActivation::none;
  float slope = 1;
  std::int64_t pool = 1;
};

/// Adds nodes behind each other. Sizes are checked when the net is finished.
class NetBuilder {
 public:
  Symbol input(std::vector<std::int64_t> sizes);
  Symbol linear(Symbol x, std::int64_t outputs, const CodedWeight& weight);
  Symbol conv2d(Symbol x, const WindowNumbers& window, const CodedWeight& weight, int pad_code);
  Symbol float_linear(Symbol x, std::int64_t outputs, const std::vector<float>& weight, const std::vector<float>& bias);
  Symbol float_conv2d(Symbol x, const WindowNumbers& window, const std::vector<float>& weight,
                      const std::vector<float>& bias);
  Symbol tail(Symbol x, const TailNumbers& numbers);
  Symbol tail(Symbol x, const TailNumbers& numbers, Symbol add);
  Symbol plane_means(Symbol x);
  Symbol strided_planes(Symbol x, std::int64_t stride, std::int64_t channels);
  Symbol softmax(Symbol x);
  Symbol max_pool(Symbol x, const PoolNumbers& pool);
  Symbol average_pool(Symbol x, const PoolNumbers& pool, bool counts_border);
  Symbol clip(Symbol x, float lo, float hi);
  Symbol sigmoid(Symbol x);
  Symbol multiply(Symbol x, Symbol by);
  Symbol concat(const std::vector<Symbol>& parts);
  Symbol transpose(Symbol x, const std::array<std::int64_t, 3>& order);
  Symbol reshape(Symbol x, std::vector<std::int64_t> sizes);
  Symbol round_to_steps(Symbol x, float step, std::int64_t zero, std::int64_t lo, std::int64_t hi);
  Symbol channel_prelu(Symbol x, const std::vector<float>& slopes);
  Symbol border(Symbol x, const std::array<std::int64_t, 4>& sides, float value);
  Symbol function(Symbol x, kernels::Function function, float a = 0, float b = 0);
  /// Over the axes from `axis` on. scale and shift may be empty.
  Symbol layer_norm(Symbol x, float eps, const std::vector<float>& scale, const std::vector<float>& shift,
                    std::int64_t axis = 0);
  /// Where x compares so with `limit` it is `yes`, else `no`.
  Symbol choose(Symbol x, kernels::Comparison comparison, float limit, Symbol yes, Symbol no);
  /// `sizes` elements from `first` on along each axis.
  Symbol crop(Symbol x, const std::array<std::int64_t, 3>& first, std::vector<std::int64_t> sizes);
  /// The same elements in the same order as [features].
  Symbol flatten(Symbol x);

  /// The sizes of a value: [features] or [channels, height, width].
  const std::vector<std::int64_t>& sizes(Symbol value) const { return net_.values[value].sizes; }
  /// The whole net, folded. @throws formats::Error where a node does not fit.
  formats::NetFile finish(const std::vector<Symbol>& outputs, bool folds = true);
  void set_metadata(const std::string& key, const std::string& text) { net_.metadata[key] = text; }

 private:
  Symbol add(NetOp op, std::vector<Symbol> inputs, std::vector<std::int64_t> sizes, std::vector<std::int64_t> ints,
             std::vector<float> floats, std::vector<std::uint32_t> blobs);
  void set_read(Symbol value);
  std::vector<std::int64_t> window_sizes(Symbol x, const WindowNumbers& window) const;
  std::vector<std::int64_t> pool_sizes(Symbol x, const std::vector<std::int64_t>& ints) const;
  std::uint32_t floats_blob(const std::vector<float>& numbers);

  formats::NetFile net_;
  std::vector<bool> is_read_;  ///< by value
};

/// The same net, to the bit, with fewer passes: the tail of a product of integers before a 1-bit product becomes a
/// threshold per channel, found by bisection over the accumulator, where it is monotone and finite; any other tail
/// whose only reader is a product of codes writes those codes. Unused nodes and blobs are left out.
formats::NetFile folded(const formats::NetFile& net);

}  // namespace bie::runtime
