#include "runtime/graph.h"

#include <algorithm>
#include <cmath>

#include "bie/formats/error.h"
#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/functions.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_gemm.h"

namespace bie::runtime {
namespace {

using formats::NetElement, formats::NetFile, formats::NetNode, formats::NetValue;

constexpr std::int64_t most = std::int64_t{1} << 26;

/// Checks of one node.
class Check {
 public:
  Check(const NetFile& net, std::size_t number) : net_(net), node_(net.nodes[number]), number_(number) {}

  void run() {
    if (node_.op < 1 || node_.op > static_cast<std::uint32_t>(last_net_op))
      fail("is operation ", node_.op, ", which this build does not know");
    switch (op_of(node_)) {
      case NetOp::linear: return linear();
      case NetOp::conv2d: return conv2d();
      case NetOp::float_linear: return float_linear();
      case NetOp::float_conv2d: return float_conv2d();
      case NetOp::tail: return tail();
      case NetOp::threshold: return threshold();
      case NetOp::plane_means: return plane_means();
      case NetOp::strided_planes: return strided_planes();
      case NetOp::softmax: return softmax();
      case NetOp::max_pool: return pool(8);
      case NetOp::average_pool: return pool(9);
      case NetOp::clip: return clip();
      case NetOp::sigmoid: return sigmoid();
      case NetOp::multiply: return multiply();
      case NetOp::concat: return concat();
      case NetOp::transpose: return transpose();
      case NetOp::reshape: return reshape();
      case NetOp::round_to_steps: return round_to_steps();
      case NetOp::channel_prelu: return channel_prelu();
      case NetOp::border: return border();
      case NetOp::function: return function();
      case NetOp::layer_norm: return layer_norm();
      case NetOp::crop: return crop();
      case NetOp::choose: return choose();
    }
  }

 private:
  std::string name() const {
    const char* const op =
        node_.op < std::size(net_op_names) && node_.op > 0 ? net_op_names[node_.op] : "of no known kind";
    return formats::joined("node ", number_, " (", op, ")");
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw formats::Error(formats::joined(name(), " ", parts...));
  }
  /// `parts`: what was expected and what was got.
  template <class... Parts>
  [[noreturn]] void fail_expected(const Parts&... parts) const {
    throw formats::Error(formats::joined(name(), ": expected ", parts...));
  }

  const NetValue& in(std::size_t i = 0) const { return net_.values[node_.inputs[i]]; }
  const NetValue& out() const { return net_.values[node_.output]; }

  void lists(std::size_t inputs, std::size_t ints, std::size_t floats, std::size_t blobs) const {
    if (node_.inputs.size() != inputs || node_.ints.size() != ints || node_.floats.size() != floats ||
        node_.blobs.size() != blobs)
      fail_expected(inputs, " inputs, ", ints, " integers, ", floats, " floats and ", blobs, " blobs, got ",
                    node_.inputs.size(), ", ", node_.ints.size(), ", ", node_.floats.size(), " and ",
                    node_.blobs.size());
  }
  void in_range(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) const {
    if (value < low || value > high) fail_expected(what, " ", low, " to ", high, ", got ", value);
  }
  std::int64_t product(std::int64_t a, std::int64_t b) const {
    std::int64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) fail("has sizes beyond all memories");
    return result;
  }
  void blob(const char* what, std::size_t i, std::int64_t bytes, bool may_lack) const {
    const std::uint32_t number = node_.blobs[i];
    if (number == formats::no_blob) {
      if (!may_lack) fail("has no ", what);
      return;
    }
    if (net_.blobs[number].size != bytes) fail_expected(bytes, " bytes of ", what, ", got ", net_.blobs[number].size);
  }
  void is(const char* what, const NetValue& value, NetElement element) const {
    if (value.element != element) fail("has ", what, " of the wrong kind of element");
  }
  /// The output has these sizes, or is flat.
  void shaped(const std::vector<std::int64_t>& sizes) const {
    if (out().sizes != sizes && !(out().sizes.size() == 1 && out().sizes[0] == elements_of({NetElement::f32, sizes})))
      fail_expected("a value of ", formats::listed(sizes), " to be written, got ", formats::listed(out().sizes));
  }
  void image() const {
    if (in().sizes.size() != 3) fail_expected("an image to be read, got ", formats::listed(in().sizes));
  }
  void number(const char* what, float value, bool positive) const {
    if (!std::isfinite(value) || (positive && !(value > 0))) fail("has a ", what, " that cannot be");
  }
  /// A linear or convolution of codes: whether it reads and writes what its bits allow.
  void coded(std::int64_t bits, std::int64_t depth, NetElement own_codes) const {
    if (bits != 1 && bits != 4 && bits != 8) fail_expected("1, 4 or 8 bits, got ", bits);
    const std::int64_t deepest = bits == 1 ? kernels::max_k_b1 : bits == 4 ? kernels::max_k_s4 : kernels::max_k_s8;
    if (depth > deepest) fail("adds up ", depth, " products, ", deepest, " fit a sum of 32 bits");
    if (in().element != NetElement::f32) is("an input", in(), own_codes);
    if (out().element != NetElement::f32) is("an output", out(), NetElement::s32);
    if (bits > 1 && in().element == NetElement::f32) number("step", node_.floats[0], true);
    number("scale", node_.floats[1], false);
  }

  void linear() const {
    lists(1, 2, 2, 2);
    const std::int64_t bits = node_.ints[0], n = node_.ints[1], k = elements_of(in());
    in_range("a number of outputs of", n, 1, most);
    coded(bits, k, bits == 1 ? NetElement::bits : NetElement::s8);
    if (bits == 4) is("an input", in(), NetElement::f32);
    blob("weight", 0, product(n, kernels::row_bytes(code_of(bits), k)), false);
    blob("bias", 1, 4 * k, true);
    shaped({n});
  }

  /// The shape of a convolution whose first geometry number is ints[first].
  void geometry(std::size_t first, std::int64_t out_c, std::int64_t groups) const {
    image();
    in_range("a number of channels of", out_c, 1, most);
    constexpr const char* names[] = {"a kernel of", "a kernel of", "a stride of",   "a stride of",
                                     "a border of", "a border of", "a dilation of", "a dilation of"};
    for (std::size_t i = 0; i < 8; ++i) in_range(names[i], node_.ints[first + i], i == 4 || i == 5 ? 0 : 1, 1 << 16);
    in_range("groups:", groups, 1, most);
    if (channels_of(in()) % groups != 0 || out_c % groups != 0)
      fail("has ", groups, " groups, which do not divide its channels");
    const kernels::Conv2dShape s = conv_shape(node_, in(), 1);
    if (s.out_h() < 1 || s.out_w() < 1) fail("has windows larger than its image");
    shaped({out_c, s.out_h(), s.out_w()});
  }

  void conv2d() const {
    lists(1, 12, 2, 2);
    const std::int64_t bits = node_.ints[0], out_c = node_.ints[1];
    in_range("a pad code of", node_.ints[11], bits == 1 ? -1 : 0, 0);
    geometry(2, out_c, node_.ints[10]);
    const kernels::Conv2dShape s = conv_shape(node_, in(), 1);
    coded(bits, product(s.group_in(), s.taps()), NetElement::s8);
    blob("weight", 0, product(out_c, kernels::row_bytes(code_of(bits), product(s.group_in(), s.taps()))), false);
    blob("bias", 1, 4 * channels_of(in()), true);
  }

  void float_linear() const {
    lists(1, 1, 0, 2);
    is("an input", in(), NetElement::f32);
    is("an output", out(), NetElement::f32);
    const std::int64_t n = node_.ints[0];
    in_range("a number of outputs of", n, 1, most);
    blob("weight", 0, product(4 * n, elements_of(in())), false);
    blob("bias", 1, 4 * n, true);
    shaped({n});
  }

  void float_conv2d() const {
    lists(1, 10, 0, 2);
    is("an input", in(), NetElement::f32);
    is("an output", out(), NetElement::f32);
    geometry(1, node_.ints[0], node_.ints[9]);
    const kernels::Conv2dShape s = conv_shape(node_, in(), 1);
    blob("weight", 0, product(product(4 * s.out_c, s.group_in()), s.taps()), false);
    blob("bias", 1, 4 * s.out_c, true);
  }

  /// Sizes behind a pool of ints[i].
  std::vector<std::int64_t> pooled(std::size_t i) const {
    const std::int64_t pool = node_.ints[i];
    in_range("a pool of", pool, 1, 16);
    if (pool == 1) return in().sizes;
    image();
    if (in().sizes[1] < pool || in().sizes[2] < pool) fail("has a pool larger than its image");
    return {in().sizes[0], in().sizes[1] / pool, in().sizes[2] / pool};
  }

  void tail() const {
    lists(node_.inputs.size() == 2 ? 2 : 1, 3, 2, 3);
    for (std::size_t i = 0; i < node_.inputs.size(); ++i) is("an input", in(i), NetElement::f32);
    if (node_.inputs.size() == 2 && in(1).sizes != in().sizes)
      fail("adds ", formats::listed(in(1).sizes), " to ", formats::listed(in().sizes));
    in_range("an activation of kind", node_.ints[0], 0, 2);
    shaped(pooled(1));
    const std::int64_t bits = node_.ints[2];
    if (bits != 0 && bits != 1 && bits != 4 && bits != 8) fail("makes codes of ", bits, " bits");
    is("an output", out(), bits == 0 ? NetElement::f32 : NetElement::s8);
    number("slope", node_.floats[0], false);
    if (bits > 1) number("step", node_.floats[1], true);
    blob("scales", 0, 4 * channels_of(in()), true);
    blob("shifts", 1, 4 * channels_of(in()), true);
    blob("bias", 2, 4 * channels_of(in()), true);
  }

  void threshold() const {
    lists(1, 1, 0, 2);
    is("an input", in(), NetElement::s32);
    const std::vector<std::int64_t> sizes = pooled(0);
    if (out().element != NetElement::s8) is("an output", out(), NetElement::bits);
    if (out().element == NetElement::bits && in().sizes.size() != 1) fail("packs the signs of an image");
    shaped(sizes);
    blob("thresholds", 0, 4 * channels_of(in()), false);
    blob("flips", 1, channels_of(in()), false);
  }

  void plane_means() const {
    lists(1, 0, 0, 0);
    image();
    is("an input", in(), NetElement::f32);
    is("an output", out(), NetElement::f32);
    shaped({channels_of(in())});
  }

  void strided_planes() const {
    lists(1, 2, 0, 0);
    image();
    is("an input", in(), NetElement::f32);
    is("an output", out(), NetElement::f32);
    const std::int64_t stride = node_.ints[0], channels = node_.ints[1];
    in_range("a stride of", stride, 1, 1 << 16);
    in_range("a number of channels of", channels, channels_of(in()), most);
    shaped({channels, (in().sizes[1] + stride - 1) / stride, (in().sizes[2] + stride - 1) / stride});
  }

  void softmax() const {
    lists(1, 0, 0, 0);
    floats_alone();
    shaped({elements_of(in())});
  }

  void floats_alone() const {
    for (std::size_t i = 0; i < node_.inputs.size(); ++i) is("an input", in(i), NetElement::f32);
    is("an output", out(), NetElement::f32);
  }

  void pool(std::size_t ints) const {
    lists(1, ints, 0, 0);
    floats_alone();
    image();
    const std::int64_t* const n = node_.ints.data();
    for (std::size_t i = 0; i < 4; ++i) in_range(i < 2 ? "a kernel of" : "a stride of", n[i], 1, 1 << 16);
    for (std::size_t i = 0; i < 4; ++i) in_range("a border of", n[4 + i], 0, n[i % 2] - 1);
    if (ints == 9) in_range("a border that counts:", n[8], 0, 1);
    const kernels::PoolShape s = pool_shape(node_, in(), 1);
    if (s.height + s.top + s.bottom < s.kernel_h || s.width + s.left + s.right < s.kernel_w)
      fail("has windows larger than its image");
    // Every window has a pixel of the image.
    if ((s.out_height() - 1) * s.stride_h - s.top >= s.height || (s.out_width() - 1) * s.stride_w - s.left >= s.width)
      fail("has windows beside its image");
    shaped({channels_of(in()), s.out_height(), s.out_width()});
  }

  void clip() const {
    lists(1, 0, 2, 0);
    floats_alone();
    if (!(node_.floats[0] <= node_.floats[1])) fail("has bounds that cannot be");
    shaped(in().sizes);
  }

  void sigmoid() const {
    lists(1, 0, 0, 0);
    floats_alone();
    shaped(in().sizes);
  }

  void multiply() const {
    lists(2, 0, 0, 0);
    floats_alone();
    if (in(1).sizes != in().sizes && elements_of(in(1)) != channels_of(in()))
      fail("multiplies ", formats::listed(in().sizes), " by ", formats::listed(in(1).sizes));
    shaped(in().sizes);
  }

  void concat() const {
    lists(std::max<std::size_t>(node_.inputs.size(), 1), 0, 0, 0);
    floats_alone();
    std::vector<std::int64_t> sizes = in().sizes;
    for (std::size_t i = 1; i < node_.inputs.size(); ++i) {
      std::vector<std::int64_t> others = in(i).sizes;
      sizes[0] += others[0];
      others[0] = in().sizes[0];
      if (others != in().sizes) fail("joins ", formats::listed(in().sizes), " and ", formats::listed(in(i).sizes));
    }
    shaped(sizes);
  }

  void transpose() const {
    lists(1, 3, 0, 0);
    floats_alone();
    image();
    std::vector<std::int64_t> sizes, order = node_.ints;
    std::sort(order.begin(), order.end());
    if (order != std::vector<std::int64_t>{0, 1, 2}) fail("has no order of three axes");
    for (const std::int64_t axis : node_.ints) sizes.push_back(in().sizes[static_cast<std::size_t>(axis)]);
    shaped(sizes);
  }

  void reshape() const {
    lists(1, 0, 0, 0);
    floats_alone();
    if (elements_of(in()) != elements_of(out()))
      fail("makes ", formats::listed(out().sizes), " of ", formats::listed(in().sizes));
  }

  void round_to_steps() const {
    lists(1, 3, 1, 0);
    floats_alone();
    const std::int64_t lo = node_.ints[1], hi = node_.ints[2];
    in_range("a least code of", lo, -(1 << 16), 1 << 16);
    in_range("a largest code of", hi, lo, 1 << 16);
    in_range("a zero of", node_.ints[0], lo, hi);
    number("step", node_.floats[0], true);
    shaped(in().sizes);
  }

  void channel_prelu() const {
    lists(1, 0, 0, 1);
    floats_alone();
    blob("slopes", 0, 4 * channels_of(in()), false);
    shaped(in().sizes);
  }

  void border() const {
    lists(1, 4, 1, 0);
    floats_alone();
    image();
    for (const std::int64_t pixels : node_.ints) in_range("a border of", pixels, 0, 1 << 16);
    const std::int64_t* const n = node_.ints.data();
    shaped({channels_of(in()), in().sizes[1] + n[0] + n[2], in().sizes[2] + n[1] + n[3]});
  }

  void function() const {
    lists(1, 1, 2, 0);
    floats_alone();
    in_range("the function", node_.ints[0], 0, static_cast<std::int64_t>(kernels::last_function));
    for (const float value : node_.floats) number("number", value, false);
    shaped(in().sizes);
  }

  void layer_norm() const {
    lists(1, node_.ints.size() == 1 ? 1 : 0, 1, 2);
    floats_alone();
    number("eps", node_.floats[0], true);
    if (node_.ints.size() == 1)
      in_range("a first axis of", node_.ints[0], 0, static_cast<std::int64_t>(in().sizes.size()) - 1);
    const std::int64_t count = normed_of(node_, in());
    blob("scales", 0, 4 * count, true);
    blob("shifts", 1, 4 * count, true);
    shaped(in().sizes);
  }

  void choose() const {
    lists(3, 1, 1, 0);
    floats_alone();
    in_range("the comparison", node_.ints[0], 0, static_cast<std::int64_t>(kernels::last_comparison));
    number("limit", node_.floats[0], false);
    for (std::size_t i = 1; i < 3; ++i)
      if (in(i).sizes != in().sizes)
        fail("chooses among ", formats::listed(in(i).sizes), " by ", formats::listed(in().sizes));
    shaped(in().sizes);
  }

  void crop() const {
    lists(1, 3, 0, 0);
    floats_alone();
    const std::vector<std::int64_t>&from = in().sizes, &to = out().sizes;
    if (from.size() != to.size()) fail("makes ", formats::listed(to), " of ", formats::listed(from));
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t last = i < from.size() ? from[i] - to[i] : 0;
      in_range("a first element of", node_.ints[i], 0, last);
    }
  }

  const NetFile& net_;
  const NetNode& node_;
  std::size_t number_;
};

}  // namespace

std::int64_t elements_of(const NetValue& value) {
  std::int64_t product = 1;
  for (const std::int64_t size : value.sizes) product *= size;
  return product;
}

std::int64_t bytes_of(const NetValue& value) { return kernels::row_bytes(dtype_of(value.element), elements_of(value)); }

kernels::Dtype dtype_of(NetElement element) {
  constexpr kernels::Dtype dtypes[] = {kernels::Dtype::f32, kernels::Dtype::s8, kernels::Dtype::s32,
                                       kernels::Dtype::bits};
  return dtypes[static_cast<std::size_t>(element)];
}

kernels::Dtype code_of(std::int64_t bits) {
  return bits == 1 ? kernels::Dtype::bits : bits == 4 ? kernels::Dtype::s4 : kernels::Dtype::s8;
}

kernels::Conv2dShape conv_shape(const NetNode& node, const NetValue& x, std::int64_t batch) {
  const bool coded = op_of(node) == NetOp::conv2d;
  const std::int64_t* const n = node.ints.data() + (coded ? 1 : 0);
  kernels::Conv2dShape shape{batch, x.sizes[0], x.sizes[1], x.sizes[2], n[0], n[1], n[2]};
  shape.stride_h = n[3], shape.stride_w = n[4];
  shape.pad_h = n[5], shape.pad_w = n[6];
  shape.dil_h = n[7], shape.dil_w = n[8];
  shape.groups = n[9];
  if (coded) shape.pad_code = static_cast<int>(n[10]);
  return shape;
}

kernels::PoolShape pool_shape(const NetNode& node, const NetValue& x, std::int64_t batch) {
  const std::int64_t* const n = node.ints.data();
  return {batch * x.sizes[0], x.sizes[1], x.sizes[2], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]};
}

std::int64_t normed_of(const NetNode& node, const NetValue& x) {
  std::int64_t count = 1;
  for (std::size_t i = node.ints.empty() ? 0 : static_cast<std::size_t>(node.ints[0]); i < x.sizes.size(); ++i)
    count *= x.sizes[i];
  return count;
}

void check_graph(const NetFile& net) {
  for (const auto* ends : {&net.inputs, &net.outputs}) {
    if (ends->empty()) throw formats::Error("the net has no inputs or no outputs");
    for (const std::uint32_t value : *ends)
      if (net.values[value].element != NetElement::f32)
        throw formats::Error("an input or output of the net holds no float32");
  }
  for (std::size_t i = 0; i < net.nodes.size(); ++i) Check(net, i).run();
}

}  // namespace bie::runtime
