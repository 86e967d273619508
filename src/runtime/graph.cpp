#include "runtime/graph.h"

#include <cmath>

#include "bie/formats/error.h"
#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_gemm.h"

namespace bie::runtime {
namespace {

using formats::NetElement, formats::NetFile, formats::NetNode, formats::NetValue;

constexpr std::int64_t most = std::int64_t{1} << 26;

/// One node on its way through the checks.
class Check {
 public:
  Check(const NetFile& net, std::size_t number) : net_(net), node_(net.nodes[number]), number_(number) {}

  void run() {
    if (node_.op < 1 || node_.op > static_cast<std::uint32_t>(NetOp::softmax))
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
    }
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    const char* const name =
        node_.op < std::size(net_op_names) && node_.op > 0 ? net_op_names[node_.op] : "of no known kind";
    throw formats::Error(formats::joined("node ", number_, " (", name, ") ", parts...));
  }

  const NetValue& in(std::size_t i = 0) const { return net_.values[node_.inputs[i]]; }
  const NetValue& out() const { return net_.values[node_.output]; }

  void lists(std::size_t inputs, std::size_t ints, std::size_t floats, std::size_t blobs) const {
    if (node_.inputs.size() != inputs || node_.ints.size() != ints || node_.floats.size() != floats ||
        node_.blobs.size() != blobs)
      fail("has ", node_.inputs.size(), " inputs, ", node_.ints.size(), " integers, ", node_.floats.size(),
           " floats and ", node_.blobs.size(), " blobs; ", inputs, ", ", ints, ", ", floats, " and ", blobs,
           " are wanted");
  }
  void in_range(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) const {
    if (value < low || value > high) fail("has ", what, " ", value, ", ", low, " to ", high, " is wanted");
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
    if (net_.blobs[number].size != bytes)
      fail("has ", net_.blobs[number].size, " bytes of ", what, ", ", bytes, " are wanted");
  }
  void is(const char* what, const NetValue& value, NetElement element) const {
    if (value.element != element) fail("has ", what, " of the wrong kind of element");
  }
  /// The output has these sizes, or is flat.
  void shaped(const std::vector<std::int64_t>& sizes) const {
    if (out().sizes != sizes && !(out().sizes.size() == 1 && out().sizes[0] == elements_of({NetElement::f32, sizes})))
      fail("writes a value of ", formats::listed(out().sizes), ", ", formats::listed(sizes), " is wanted");
  }
  void image() const {
    if (in().sizes.size() != 3) fail("reads ", formats::listed(in().sizes), ", an image is wanted");
  }
  void number(const char* what, float value, bool positive) const {
    if (!std::isfinite(value) || (positive && !(value > 0))) fail("has a ", what, " that cannot be");
  }
  /// A linear or convolution of codes: whether it reads and writes what its bits allow.
  void coded(std::int64_t bits, std::int64_t depth, NetElement own_codes) const {
    if (bits != 1 && bits != 4 && bits != 8) fail("has ", bits, " bits, 1, 4 or 8 are wanted");
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

  /// What a pool of ints[i] leaves of the input.
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
    is("an input", in(), NetElement::f32);
    is("an output", out(), NetElement::f32);
    shaped({elements_of(in())});
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
