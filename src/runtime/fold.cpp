// Folds a net's tails into thresholds and codes: a graph with fewer passes and the same bits.
//
// Whatever lies between a product of integers and a product of signs is a function of the accumulator, whose steps are
// rounded as the kernels round them. If every step is monotone and finite at both ends, the function is one threshold
// per channel, which bisection finds, and bits stay bits. Any other tail whose only reader is a product of codes writes
// those codes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "bie/runtime/net_builder.h"
#include "runtime/graph.h"

namespace bie::runtime {
namespace {

using formats::NetElement, formats::NetFile, formats::NetNode, formats::NetValue;

constexpr std::size_t none = static_cast<std::size_t>(-1);

bool is_product(const NetNode& node) { return op_of(node) == NetOp::linear || op_of(node) == NetOp::conv2d; }

std::vector<std::uint8_t> bytes_of_array(const void* data, std::size_t bytes) {
  const auto* const from = static_cast<const std::uint8_t*>(data);
  return {from, from + bytes};
}

/// v where v >= 0, else v * slope or 0: kernels/block_tail.h.
float bent(float v, const NetNode& tail) {
  const auto act = static_cast<NetActivation>(tail.ints[0]);
  if (act == NetActivation::none || !(v < 0)) return v;
  return act == NetActivation::relu ? 0.0f : v * tail.floats[0];
}

/// A product of integers, what follows it in order, and the product of signs that reads the end.
struct Chain {
  const NetFile& net;
  const NetNode& from;
  std::vector<const NetNode*> tails;
  const NetNode& to;

  float scale(const NetNode& tail, std::int64_t c) const {
    const float* const scales = blob_of<float>(net, tail, 0);
    return scales == nullptr ? 1.0f : scales[c];
  }
  float shift(const NetNode& tail, std::int64_t c) const {
    const float* const shifts = blob_of<float>(net, tail, 1);
    return shifts == nullptr ? -0.0f : shifts[c];
  }

  /// Value whose sign the next layer takes, for an accumulator of channel c, rounded as the kernels round; nothing if
  /// an intermediate number is not finite.
  std::optional<float> value(std::int64_t acc, std::int64_t c) const {
    float v = static_cast<float>(static_cast<std::int32_t>(acc)) * from.floats[1];
    if (!std::isfinite(v)) return {};
    for (const NetNode* tail : tails) {
      v = v * scale(*tail, c) + shift(*tail, c);
      if (!std::isfinite(v)) return {};
      v = bent(v, *tail);
    }
    const float* const bias = blob_of<float>(net, to, 1);
    v = v + (bias == nullptr ? 0.0f : bias[c]);
    return std::isfinite(v) ? std::optional<float>(v) : std::nullopt;
  }

  /// The largest magnitude of an accumulator.
  std::int64_t bound() const {
    const NetValue& x = net.values[from.inputs[0]];
    std::int64_t depth = elements_of(x);
    if (op_of(from) == NetOp::conv2d) depth = conv_shape(from, x, 1).depth();
    return depth * (from.ints[0] == 1 ? 1 : from.ints[0] == 4 ? 64 : 128 * 128);
  }

  bool monotone() const {
    for (const NetNode* tail : tails)
      if (static_cast<NetActivation>(tail->ints[0]) == NetActivation::prelu && !(tail->floats[0] >= 0)) return false;
    return true;
  }
};

struct Thresholds {
  std::vector<std::int32_t> at;
  std::vector<std::uint8_t> flips;
  std::int64_t pool = 1;
};

/// Thresholds of all channels; nothing if the chain is not provably equal to thresholds.
std::optional<Thresholds> thresholds_of(const Chain& chain) {
  if (!chain.monotone()) return {};
  Thresholds found;
  std::size_t pooled_by = none;
  for (std::size_t i = 0; i < chain.tails.size(); ++i) {
    if (chain.tails[i]->ints[1] == 1) continue;
    if (pooled_by != none) return {};
    pooled_by = i;
    found.pool = chain.tails[i]->ints[1];
  }
  const std::int64_t channels = channels_of(chain.net.values[chain.from.output]), most = chain.bound();
  for (std::int64_t c = 0; c < channels; ++c) {
    bool rises = !(chain.from.floats[1] < 0);
    for (std::size_t i = 0; i < chain.tails.size(); ++i) {
      const bool falls = chain.scale(*chain.tails[i], c) < 0;
      // The maximum of a square has the greatest sign only if the rest of the chain is increasing.
      if (falls && pooled_by != none && i > pooled_by) return {};
      if (falls) rises = !rises;
    }
    // Finite at both ends, and so everywhere between them.
    if (!chain.value(-most, c) || !chain.value(most, c)) return {};
    const auto past = [&](std::int64_t acc) { return (*chain.value(acc, c) >= 0) == rises; };
    std::int64_t low = -most, high = most + 1;  // the first accumulator that is past lies in [low, high]
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (past(middle))
        high = middle;
      else
        low = middle + 1;
    }
    found.at.push_back(static_cast<std::int32_t>(low));
    found.flips.push_back(rises ? 0 : 1);
  }
  return found;
}

class Folding {
 public:
  explicit Folding(const NetFile& net) : net_(net), dropped_(net.nodes.size()) {}

  NetFile run() {
    count();
    for (std::size_t i = 0; i < net_.nodes.size(); ++i) merge_tail(i);
    for (std::size_t i = 0; i < net_.nodes.size(); ++i)
      if (is_product(net_.nodes[i]) && net_.nodes[i].ints[0] == 1) to_threshold(i);
    for (std::size_t i = 0; i < net_.nodes.size(); ++i)
      if (is_product(net_.nodes[i])) to_codes(i);
    return compact();
  }

 private:
  void count() {
    writer_.assign(net_.values.size(), none);
    reads_.assign(net_.values.size(), 0);
    for (std::size_t i = 0; i < net_.nodes.size(); ++i) {
      if (dropped_[i]) continue;
      writer_[net_.nodes[i].output] = i;
      for (const std::uint32_t value : net_.nodes[i].inputs) ++reads_[value];
    }
    for (const std::uint32_t value : net_.outputs) ++reads_[value];
  }

  /// A value that no node writes or reads any more.
  void forget(std::uint32_t value) {
    writer_[value] = none;
    reads_[value] = 0;
  }

  /// The node whose only reader takes this value; none where there is no such.
  std::size_t only_writer(std::uint32_t value) const { return reads_[value] == 1 ? writer_[value] : none; }

  static bool is_plain_tail(const NetNode& node) {
    return op_of(node) == NetOp::tail && node.inputs.size() == 1 && node.ints[2] == 0;
  }

  /// A tail that only adds, bends or pools goes into the tail whose only reader it is, as far as the order of the
  /// operations of one tail allows: an identity, x * 1 + -0, changes no bit.
  void merge_tail(std::size_t number) {
    NetNode& tail = net_.nodes[number];
    if (op_of(tail) != NetOp::tail || tail.ints[2] != 0) return;
    if (tail.blobs[0] != formats::no_blob || tail.blobs[1] != formats::no_blob) return;
    const std::size_t before = only_writer(tail.inputs[0]);
    if (before == none || dropped_[before] || op_of(net_.nodes[before]) != NetOp::tail) return;
    NetNode& first = net_.nodes[before];
    const bool adds = tail.inputs.size() == 2, bends = tail.ints[0] != 0;
    const bool first_is_open = first.ints[0] == 0 && first.ints[1] == 1 && first.ints[2] == 0;
    if (adds && (!first_is_open || first.inputs.size() == 2)) return;
    if (bends && !first_is_open) return;
    if (first.ints[1] != 1 || first.ints[2] != 0) return;
    // It stands where the later one stood, behind whatever that one adds.
    NetNode merged = first;
    if (adds) merged.inputs.push_back(tail.inputs[1]);
    if (bends) merged.ints[0] = tail.ints[0], merged.floats[0] = tail.floats[0];
    merged.ints[1] = tail.ints[1];
    merged.output = tail.output;
    forget(tail.inputs[0]);
    tail = std::move(merged);
    dropped_[before] = true;
  }

  /// The product number `reader` reads signs of a threshold, where it can.
  void to_threshold(std::size_t reader) {
    NetNode& to = net_.nodes[reader];
    if (net_.values[to.inputs[0]].element != NetElement::f32) return;
    std::vector<std::size_t> tails;  // the last first
    std::size_t at = only_writer(to.inputs[0]);
    while (at != none && is_plain_tail(net_.nodes[at])) {
      tails.push_back(at);
      at = only_writer(net_.nodes[at].inputs[0]);
    }
    if (at == none || !is_product(net_.nodes[at])) return;
    NetNode& from = net_.nodes[at];
    if (net_.values[from.output].element != NetElement::f32) return;
    const bool packs = op_of(to) == NetOp::linear;
    // Channels of the accumulator are those of the signs: nothing is flat on the way.
    if (packs && net_.values[from.output].sizes.size() != 1) return;
    Chain chain{net_, from, {}, to};
    for (auto tail = tails.rbegin(); tail != tails.rend(); ++tail) chain.tails.push_back(&net_.nodes[*tail]);
    const std::optional<Thresholds> found = thresholds_of(chain);
    if (!found) return;

    const std::uint32_t limits =
        formats::add_blob(net_, bytes_of_array(found->at.data(), found->at.size() * sizeof(std::int32_t)));
    const std::uint32_t flips = formats::add_blob(net_, found->flips);
    const NetNode node{
        static_cast<std::uint32_t>(NetOp::threshold), {from.output}, to.inputs[0], {found->pool}, {}, {limits, flips}};
    net_.values[from.output].element = NetElement::s32;
    net_.values[to.inputs[0]].element = packs ? NetElement::bits : NetElement::s8;
    to.blobs[1] = formats::no_blob;
    if (tails.empty()) {
      // The product's own value becomes sums, and the signs are a new one.
      const NetValue signs{packs ? NetElement::bits : NetElement::s8, net_.values[from.output].sizes};
      net_.values[from.output].element = NetElement::s32;
      net_.values.push_back(signs);
      NetNode behind = node;
      behind.output = static_cast<std::uint32_t>(net_.values.size() - 1);
      to.inputs[0] = behind.output;
      forget(from.output);
      writer_.push_back(none);
      reads_.push_back(1);
      inserted_[at] = std::move(behind);
    } else {
      for (const std::size_t tail : tails) dropped_[tail] = true;
      for (std::size_t i = 1; i < tails.size(); ++i) forget(net_.nodes[tails[i]].output);
      dropped_[tails.front()] = false;
      net_.nodes[tails.front()] = node;
    }
  }

  /// The tail before product number `reader` writes its codes, where nobody else reads it.
  void to_codes(std::size_t reader) {
    NetNode& to = net_.nodes[reader];
    const NetValue& value = net_.values[to.inputs[0]];
    if (value.element != NetElement::f32) return;
    const std::size_t writer = only_writer(to.inputs[0]);
    if (writer == none || dropped_[writer] || op_of(net_.nodes[writer]) != NetOp::tail) return;
    const std::int64_t bits = to.ints[0];
    const bool linear = op_of(to) == NetOp::linear;
    if (linear && bits != 8) return;  // whose codes are packed
    std::uint32_t bias = to.blobs[1];
    const std::int64_t channels = channels_of(net_.values[net_.nodes[writer].inputs[0]]);
    if (linear && channels != elements_of(value) && bias != formats::no_blob) {
      const std::optional<std::uint32_t> shared = bias_of_channels(to, channels, elements_of(value) / channels);
      if (!shared) return;
      bias = *shared;
    }
    NetNode& tail = net_.nodes[writer];
    tail.ints[2] = bits;
    if (bits > 1) tail.floats[1] = to.floats[0];
    tail.blobs[2] = bias;
    to.blobs[1] = formats::no_blob;
    net_.values[to.inputs[0]].element = NetElement::s8;
  }

  /// The bias of features as one of channels, where the pixels of a channel share theirs.
  std::optional<std::uint32_t> bias_of_channels(const NetNode& linear, std::int64_t count, std::int64_t pixels) {
    const float* const bias = blob_of<float>(net_, linear, 1);
    std::vector<float> channels;
    for (std::int64_t c = 0; c < count; ++c) {
      channels.push_back(bias[c * pixels]);
      for (std::int64_t p = 1; p < pixels; ++p)
        if (std::bit_cast<std::uint32_t>(bias[c * pixels]) != std::bit_cast<std::uint32_t>(bias[c * pixels + p]))
          return {};
    }
    return formats::add_blob(net_, bytes_of_array(channels.data(), channels.size() * sizeof(float)));
  }

  /// Keeps the nodes and values that are read, in their order.
  NetFile compact() const {
    std::vector<NetNode> nodes;
    for (std::size_t i = 0; i < net_.nodes.size(); ++i) {
      if (!dropped_[i]) nodes.push_back(net_.nodes[i]);
      if (const auto behind = inserted_.find(i); behind != inserted_.end()) nodes.push_back(behind->second);
    }
    NetFile net;
    net.metadata = net_.metadata;
    net.owners = net_.owners;
    std::vector<std::uint32_t> values(net_.values.size(), formats::no_blob), blobs(net_.blobs.size(), formats::no_blob);
    const auto value = [&](std::uint32_t old) {
      if (values[old] == formats::no_blob) {
        values[old] = static_cast<std::uint32_t>(net.values.size());
        net.values.push_back(net_.values[old]);
      }
      return values[old];
    };
    for (const std::uint32_t input : net_.inputs) net.inputs.push_back(value(input));
    for (NetNode node : nodes) {
      for (std::uint32_t& input : node.inputs) input = value(input);
      node.output = value(node.output);
      for (std::uint32_t& blob : node.blobs) {
        if (blob == formats::no_blob) continue;
        if (blobs[blob] == formats::no_blob) {
          blobs[blob] = static_cast<std::uint32_t>(net.blobs.size());
          net.blobs.push_back(net_.blobs[blob]);
        }
        blob = blobs[blob];
      }
      net.nodes.push_back(std::move(node));
    }
    for (const std::uint32_t output : net_.outputs) net.outputs.push_back(value(output));
    return net;
  }

  NetFile net_;
  std::vector<bool> dropped_;
  std::map<std::size_t, NetNode> inserted_;  ///< by the node that it stands behind
  std::vector<std::size_t> writer_, reads_;
};

}  // namespace

NetFile folded(const NetFile& net) { return Folding(net).run(); }

}  // namespace bie::runtime
