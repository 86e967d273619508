#include "runtime/plan.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/graph.h"

namespace bie::runtime {
namespace {

using formats::NetElement, formats::NetFile, formats::NetNode, formats::NetValue;

constexpr std::size_t none = static_cast<std::size_t>(-1);

/// A convolution of codes, whose kernel reads and writes channels last.
bool is_code_conv(const NetNode& node) { return op_of(node) == NetOp::conv2d && node.ints[0] > 1; }

/// One whose kernel can compute the tail behind it.
bool takes_tail(const NetNode& node) { return is_code_conv(node) || op_of(node) == NetOp::float_conv2d; }

/// Whether a convolution of few outputs is faster in planes, whose pixels are lanes, than with its tail and channels
/// last, where outputs are the lanes: of floats up to 32 outputs, of codes those that leave half of 64 lanes empty and
/// whose windows of up to 256 codes fit the tile of pixels.
bool is_thin(const NetFile& net, const NetNode& conv, bool has_pixel_tiles) {
  const kernels::Conv2dShape shape = conv_shape(conv, net.values[conv.inputs[0]], 1);
  if (op_of(conv) == NetOp::float_conv2d) return shape.group_out() <= 32;
  return has_pixel_tiles && shape.groups == 1 && shape.out_c <= 32 && shape.depth() <= 256;
}

/// Whether every code of a convolution's tail comes of a finite number, whatever the sums are.
bool surely_finite(const NetFile& net, const NetNode& conv, const NetNode& tail) {
  const double code = conv.ints[0] == 4 ? 8 : 128;
  const auto depth = static_cast<double>(conv_shape(conv, net.values[conv.inputs[0]], 1).depth());
  const double most = code * code * depth * std::fabs(static_cast<double>(conv.floats[1]));
  const float *const scale = blob_of<float>(net, tail, 0), *const shift = blob_of<float>(net, tail, 1);
  const float* const bias = blob_of<float>(net, tail, 2);
  const double bend = std::max(1.0, std::fabs(static_cast<double>(tail.floats[0])));
  const auto size_of = [](const float* all, std::int64_t c, double otherwise) {
    return all == nullptr ? otherwise : std::fabs(static_cast<double>(all[c]));
  };
  for (std::int64_t c = 0; c < conv.ints[1]; ++c) {
    const double v = most * size_of(scale, c, 1) + size_of(shift, c, 0);
    if (!(std::max(most, v * bend) + size_of(bias, c, 0) < FLT_MAX / 4)) return false;
  }
  return true;
}

class Planning {
 public:
  Planning(const NetFile& net, bool has_pixel_tiles)
      : net_(net),
        has_pixel_tiles_(has_pixel_tiles),
        readers_(net.values.size()),
        writers_(net.values.size(), none),
        conv_of_(net.nodes.size(), none),
        sigmoid_of_(net.nodes.size(), none),
        held_(net.nodes.size(), false),
        twins_(net.nodes.size(), no_value) {
    plan_.values = net.values;
    plan_.last.assign(net.values.size(), false);
    plan_.takes_tail.assign(net.nodes.size(), false);
    is_output_.assign(net.values.size(), false);
    for (const std::uint32_t value : net.outputs) is_output_[value] = true;
  }

  Plan run() {
    for (std::size_t i = 0; i < net_.nodes.size(); ++i) {
      writers_[net_.nodes[i].output] = i;
      for (const std::uint32_t value : net_.nodes[i].inputs) readers_[value].push_back(i);
    }
    for (std::size_t i = 0; i < net_.nodes.size(); ++i) propose(i);
    withdraw();
    for (std::size_t i = 0; i < net_.nodes.size(); ++i) sigmoid_of_[i] = gate_of(i);
    for (const auto* parts : {&conv_of_, &sigmoid_of_})
      for (const std::size_t part : *parts)
        if (part != none) held_[part] = true;
    for (std::size_t i = 0; i < net_.nodes.size(); ++i) add(i);
    return std::move(plan_);
  }

 private:
  bool is_output(std::uint32_t value) const { return is_output_[value]; }

  /// The sigmoid of a product's other factor, where the product alone reads it.
  std::size_t gate_of(std::size_t i) const {
    const NetNode& node = net_.nodes[i];
    if (op_of(node) != NetOp::multiply) return none;
    for (const std::size_t side : {0, 1}) {
      const std::uint32_t x = node.inputs[1 - side], gate = node.inputs[side];
      const std::size_t writer = writers_[gate];
      if (writer == none || op_of(net_.nodes[writer]) != NetOp::sigmoid || net_.nodes[writer].inputs[0] != x) continue;
      if (readers_[gate].size() != 1 || is_output(gate) || net_.values[gate].sizes != net_.values[x].sizes) continue;
      return writer;
    }
    return none;
  }

  /// A tail that its convolution's kernel could compute, and what its layout goes on to.
  void propose(std::size_t i) {
    const NetNode& node = net_.nodes[i];
    const NetValue& y = net_.values[node.output];
    if (is_output(node.output) || y.sizes.size() != 3) return;
    if (moves_pixels(node)) plan_.last[node.output] = true;
    if (op_of(node) != NetOp::tail) return;
    const std::uint32_t x = node.inputs[0];
    if (readers_[x].size() != 1 || is_output(x) || (node.inputs.size() == 2 && node.inputs[1] == x)) return;
    const std::size_t writer = writers_[x];
    if (writer == none || !takes_tail(net_.nodes[writer]) || net_.values[x].element != NetElement::f32) return;
    if (is_thin(net_, net_.nodes[writer], has_pixel_tiles_)) return;
    const bool pools = node.ints[1] != 1;
    if (pools && (y.element != NetElement::s8 || node.inputs.size() == 2)) return;
    conv_of_[i] = writer;
    plan_.last[node.output] = true;
  }

  /// Reads and writes channels in the same order, of either.
  static bool moves_pixels(const NetNode& node) {
    return op_of(node) == NetOp::strided_planes || op_of(node) == NetOp::max_pool;
  }

  bool reads_last(std::size_t reader, std::uint32_t value) const {
    const NetNode& node = net_.nodes[reader];
    switch (op_of(node)) {
      case NetOp::conv2d: return is_code_conv(node);
      case NetOp::plane_means: return true;
      case NetOp::strided_planes:
      case NetOp::max_pool: return plan_.last[node.output];
      case NetOp::tail: return conv_of_[reader] != none && node.inputs[0] != value;
      default: return false;
    }
  }

  bool fits(const NetNode& node) const {
    for (const std::size_t reader : readers_[node.output])
      if (!reads_last(reader, node.output)) return false;
    if (moves_pixels(node)) return plan_.last[node.inputs[0]];
    return op_of(node) != NetOp::tail || node.inputs.size() != 2 || plan_.last[node.inputs[1]];
  }

  /// Takes back the proposals that others do not go with, until all do. One that is taken back is looked at by the
  /// nodes before and behind it alone.
  void withdraw() {
    std::vector<std::size_t> open(net_.nodes.size());
    std::iota(open.rbegin(), open.rend(), std::size_t{0});
    while (!open.empty()) {
      const std::size_t i = open.back();
      open.pop_back();
      const NetNode& node = net_.nodes[i];
      if (!plan_.last[node.output] || fits(node)) continue;
      plan_.last[node.output] = false;
      conv_of_[i] = none;
      open.insert(open.end(), readers_[node.output].begin(), readers_[node.output].end());
      for (const std::uint32_t value : node.inputs)
        if (writers_[value] != none) open.push_back(writers_[value]);
    }
  }

  std::uint32_t new_value(NetElement element, const std::vector<std::int64_t>& sizes) {
    plan_.values.push_back({element, sizes});
    plan_.last.push_back(true);
    return static_cast<std::uint32_t>(plan_.values.size() - 1);
  }

  void add(std::size_t i) {
    if (held_[i]) return;
    if (conv_of_[i] != none) return add_tailed(i);
    const NetNode& node = net_.nodes[i];
    if (const std::size_t gate = sigmoid_of_[i]; gate != none) {
      plan_.works.push_back(
          {Work::Kind::silu, i, gate, net_.nodes[gate].inputs, {node.output}, no_value, no_value, nullptr, 1, 0});
      return;
    }
    Work work{Work::Kind::node, i, 0, node.inputs, {node.output}, no_value, no_value, nullptr, 1, 0};
    if (is_code_conv(node)) work.reads[0] = codes_read(i);
    plan_.works.push_back(std::move(work));
  }

  /// Value that a convolution reads: its input, or the codes that the input's writer makes of it.
  std::uint32_t codes_read(std::size_t conv) const {
    return twins_[conv] != no_value ? twins_[conv] : net_.nodes[conv].inputs[0];
  }

  void add_tailed(std::size_t i) {
    const NetNode &tail = net_.nodes[i], &conv = net_.nodes[conv_of_[i]];
    const NetValue& y = net_.values[tail.output];
    plan_.takes_tail[conv_of_[i]] = true;
    Work work{Work::Kind::tailed, conv_of_[i], i, {codes_read(conv_of_[i])}, {}, no_value, no_value, nullptr, 1, 0};
    if (tail.inputs.size() == 2) work.reads.push_back(tail.inputs[1]);
    const bool pools = tail.ints[1] != 1;
    // The largest code is that of the largest number, but for numbers that have none.
    const bool late = pools && !(is_code_conv(conv) && surely_finite(net_, conv, tail));
    if (late) {
      work.floats = new_value(NetElement::f32, net_.values[conv.output].sizes);
    } else if (y.element == NetElement::s8) {
      work.codes = pools ? new_value(NetElement::s8, net_.values[conv.output].sizes) : tail.output;
      work.bias = blob_of<float>(net_, tail, 2);
      work.step = tail.floats[1];
      work.bits = tail.ints[2];
    } else {
      make_codes(work, tail.output);
    }
    for (const std::uint32_t value : {work.floats, work.codes})
      if (value != no_value) work.writes.push_back(value);
    const std::uint32_t unpooled = late ? work.floats : work.codes;
    plan_.works.push_back(std::move(work));
    if (pools)
      plan_.works.push_back({Work::Kind::pooled, i, 0, {unpooled}, {tail.output}, no_value, no_value, nullptr, 1, 0});
  }

  /// Floats that convolutions read become their codes where they are written. Readers with the same quantiser share the
  /// codes.
  void make_codes(Work& work, std::uint32_t value) {
    bool floats = false;
    for (const std::size_t reader : readers_[value]) {
      const NetNode& node = net_.nodes[reader];
      const float* const bias = is_code_conv(node) ? blob_of<float>(net_, node, 1) : nullptr;
      const auto bytes = static_cast<std::size_t>(channels_of(net_.values[value])) * sizeof(float);
      const bool alike = work.codes == no_value || (work.bits == node.ints[0] && work.step == node.floats[0] &&
                                                    (work.bias == bias || (work.bias != nullptr && bias != nullptr &&
                                                                           std::memcmp(work.bias, bias, bytes) == 0)));
      if (!is_code_conv(node) || !alike) {
        floats = true;
        continue;
      }
      if (work.codes == no_value) {
        work.codes = new_value(NetElement::s8, net_.values[value].sizes);
        work.bias = bias;
        work.step = node.floats[0];
        work.bits = node.ints[0];
      }
      twins_[reader] = work.codes;
    }
    if (floats) work.floats = value;
  }

  const NetFile& net_;
  bool has_pixel_tiles_;
  Plan plan_;
  std::vector<std::vector<std::size_t>> readers_;  ///< per value
  std::vector<std::size_t> writers_;               ///< per value, none where it is an input
  std::vector<std::size_t> conv_of_;               ///< of each tail that a convolution's kernel computes
  std::vector<std::size_t> sigmoid_of_;            ///< of each product of a value and its sigmoid
  std::vector<bool> held_;                         ///< nodes that are part of another one's work
  std::vector<std::uint32_t> twins_;               ///< of each convolution: the codes of what it reads, or no_value
  std::vector<bool> is_output_;                    ///< per value
};

}  // namespace

Plan plan_of(const NetFile& net, bool has_pixel_tiles) { return Planning(net, has_pixel_tiles).run(); }

}  // namespace bie::runtime
