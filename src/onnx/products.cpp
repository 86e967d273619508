// Conv, Gemm and MatMul: products of floats, and of codes where both sides were dequantised.
#include <cmath>
#include <utility>

#include "onnx/lowering.h"

namespace bie::onnx {
namespace {

/// A weight [rows, depth], a bias, and where there are, its codes and their steps.
struct Weight {
  std::int64_t rows, depth;
  std::vector<float> numbers, bias;  ///< bias: [rows] or empty
  std::vector<std::int8_t> codes;    ///< empty: none
  std::vector<float> steps;          ///< [rows]
};

/// Weight from a constant whose rows lie along `axis`: 0, or 1 for a matrix that has to be transposed.
Weight weight_of(const NodeView& n, std::size_t input, std::int64_t axis) {
  const Constant& constant = n.constant(input);
  const Sizes& sizes = constant.tensor.sizes;
  Weight w{sizes[static_cast<std::size_t>(axis)], 0, n.floats(input), {}, {}, {}};
  n.wants(w.rows > 0 && !w.numbers.empty(), "has an empty weight");
  w.depth = constant.tensor.count() / w.rows;
  const bool turned = axis == 1;
  if (turned)
    for (std::int64_t i = 0; i < w.depth; ++i)
      for (std::int64_t j = 0; j < w.rows; ++j)
        w.numbers[static_cast<std::size_t>(j * w.depth + i)] =
            constant.tensor.floats[static_cast<std::size_t>(i * w.rows + j)];
  if (!constant.codes || (constant.steps.size() > 1 && constant.axis != axis)) return w;
  const int offset = constant.codes->type == Type::u8 ? 128 : 0;
  w.codes.resize(w.numbers.size());
  for (std::int64_t j = 0; j < w.rows; ++j)
    for (std::int64_t i = 0; i < w.depth; ++i) {
      const std::int64_t from = turned ? i * w.rows + j : j * w.depth + i;
      const std::int64_t code = constant.codes->ints[static_cast<std::size_t>(from)];
      w.codes[static_cast<std::size_t>(j * w.depth + i)] = static_cast<std::int8_t>(code - offset);
    }
  w.steps = constant.steps;
  w.steps.resize(static_cast<std::size_t>(w.rows), constant.steps[0]);
  return w;
}

/// Input `input`, one number per row or one for all.
std::vector<float> bias_of(const NodeView& n, std::size_t input, std::int64_t rows) {
  if (!n.has(input)) return {};
  std::vector<float> bias = n.floats(input);
  if (bias.size() == 1) bias.resize(static_cast<std::size_t>(rows), bias[0]);
  n.wants(static_cast<std::int64_t>(bias.size()) == rows, "expected a bias of ", rows, " numbers, got ", bias.size());
  return bias;
}

/// A BatchNormalization that alone reads this product goes into its weight; the name of what is written then.
std::string with_norm(const NodeView& n, Weight& w) {
  const auto reader = n.lowering().only_reader(n);
  if (!w.codes.empty() || !reader) return n.node().outputs[0];
  const NodeView norm(n.lowering(), *reader);
  if (norm.node().op != "BatchNormalization" || !norm.node().domain.empty() ||
      norm.node().inputs[0] != n.node().outputs[0] || norm.node().outputs.empty())
    return n.node().outputs[0];
  std::vector<float> scale, shift;
  norm_of(norm, w.rows, &scale, &shift);
  w.bias.resize(static_cast<std::size_t>(w.rows), 0.0f);
  for (std::int64_t j = 0; j < w.rows; ++j) {
    const auto row = static_cast<std::size_t>(j);
    for (std::int64_t i = 0; i < w.depth; ++i) w.numbers[static_cast<std::size_t>(j * w.depth + i)] *= scale[row];
    w.bias[row] = w.bias[row] * scale[row] + shift[row];
  }
  n.lowering().skip(*reader);
  return norm.node().outputs[0];
}

/// Whether both sides are codes of the whole range of 8 bits.
bool is_coded(const Value& x, const Weight& w) {
  return !w.codes.empty() && x.steps && x.steps->hi - x.steps->lo == 255;
}

/// x = step * (code - zero) with codes of -128 to 127, so y = step * step_w * (sum of codes - zero * sum of the
/// weight).
struct Coded {
  std::int64_t zero;
  runtime::CodedWeight weight;
  runtime::TailNumbers tail;

  Coded(const Value& x, const Weight& w, std::int64_t features)
      : zero(x.steps->zero - (x.steps->lo == 0 ? 128 : 0)), weight{8, x.steps->step, x.steps->step, {}, {}} {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(w.codes.data());
    weight.weight.assign(bytes, bytes + w.codes.size());
    const float bias = x.steps->step * static_cast<float>(zero);
    if (zero != 0) weight.bias.assign(static_cast<std::size_t>(features), bias);
    tail.scale = w.steps;
    tail.shift = w.bias;
    if (zero == 0) return;
    tail.shift.resize(static_cast<std::size_t>(w.rows), 0.0f);
    for (std::int64_t j = 0; j < w.rows; ++j) {
      const auto row = static_cast<std::size_t>(j);
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < w.depth; ++i) sum += w.codes[static_cast<std::size_t>(j * w.depth + i)];
      tail.shift[row] = static_cast<float>(static_cast<double>(tail.shift[row]) -
                                           static_cast<double>(x.steps->step) * static_cast<double>(zero * sum) *
                                               static_cast<double>(w.steps[row]));
    }
  }
};

void lower_linear(const NodeView& n, Weight w) {
  const Value& x = n.value(0);
  n.wants(x.sizes.size() == 1, "expected a list of features, got ", formats::listed(x.sizes), " a sample");
  n.wants(w.depth == x.sizes[0], "reads ", x.sizes[0], " features, its weight has ", w.depth);
  Lowering& to = n.lowering();
  runtime::NetBuilder& net = to.net();
  const std::string output = with_norm(n, w);
  if (!is_coded(x, w)) {
    to.set(output, {net.float_linear(to.features(x), w.rows, w.numbers, w.bias), {w.rows}, {}});
    return;
  }
  const Coded coded(x, w, w.depth);
  to.set(output, {net.tail(net.linear(to.source(x), w.rows, coded.weight), coded.tail), {w.rows}, {}});
}

}  // namespace

void lower_conv(const NodeView& n) {
  const Value& x = n.value(0);
  n.wants(x.sizes.size() == 3, "expected an image, got ", formats::listed(x.sizes), " a sample");
  const Sizes& sizes = n.constant(1).tensor.sizes;
  n.wants(sizes.size() == 4, "has a weight of ", formats::listed(sizes), ", that of images has four sizes");
  const std::int64_t groups = n.integer("group", 1);
  n.wants(groups >= 1 && sizes[1] > 0 && sizes[1] <= x.sizes[0] && groups <= x.sizes[0] &&
              sizes[1] * groups == x.sizes[0] && sizes[0] % groups == 0,
          "has a weight of ", formats::listed(sizes), " in ", groups, " groups for an image of ",
          formats::listed(x.sizes));
  Weight w = weight_of(n, 1, 0);
  w.bias = bias_of(n, 2, w.rows);
  runtime::WindowNumbers window{sizes[0], {sizes[2], sizes[3]}};
  window.stride = pair_of(n, "strides", 1);
  window.dilation = pair_of(n, "dilations", 1);
  window.groups = groups;
  n.wants(n.integers("kernel_shape", {sizes[2], sizes[3]}) == Sizes{sizes[2], sizes[3]},
          "has a kernel_shape that is not its weight's");
  const std::array<std::int64_t, 4> pads = pads_of(n, x.sizes, window.kernel, window.stride, window.dilation);

  Lowering& to = n.lowering();
  runtime::NetBuilder& net = to.net();
  const std::string output = with_norm(n, w);
  const bool codes = is_coded(x, w);
  Symbol image = codes ? to.source(x) : to.shaped(x);
  // Zeros of the border are codes of zero; a product pads with codes of 0, and alike on both sides.
  const bool is_plain = pads[0] == pads[2] && pads[1] == pads[3] && !(codes && Coded(x, w, 0).zero != 0);
  if (is_plain)
    window.padding = {pads[0], pads[1]};
  else
    image = net.border(image, pads, 0);
  const std::vector<std::int64_t>& whole = net.sizes(image);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t room = whole[1 + i] + 2 * window.padding[i];
    n.wants(window.dilation[i] * (window.kernel[i] - 1) < room, "has windows larger than its image");
  }
  Symbol y;
  if (codes) {
    const Coded coded(x, w, x.sizes[0]);
    y = net.tail(net.conv2d(image, window, coded.weight, 0), coded.tail);
  } else {
    y = net.float_conv2d(image, window, w.numbers, w.bias);
  }
  const Sizes written = net.sizes(y);
  to.set(output, {y, written, {}});
}

void lower_gemm(const NodeView& n) {
  n.wants(n.integer("transA", 0) == 0, "has transA, which turns the batch over");
  const Sizes& sizes = n.constant(1).tensor.sizes;
  n.wants(sizes.size() == 2, "expected a matrix as its weight, got ", formats::listed(sizes));
  const float alpha = n.number("alpha", 1), beta = n.number("beta", 1);
  Weight w = weight_of(n, 1, n.integer("transB", 0) != 0 ? 0 : 1);
  if (n.has(2)) {
    const Sizes& added = n.constant(2).tensor.sizes;
    const bool is_row = added.empty() || (added.size() == 1 && (added[0] == 1 || added[0] == w.rows)) ||
                        (added.size() == 2 && added[0] == 1 && (added[1] == 1 || added[1] == w.rows));
    n.wants(is_row, "expected a constant of one number per output to be added, got one of ", formats::listed(added));
  }
  w.bias = bias_of(n, 2, w.rows);
  if (alpha != 1) w.codes.clear();
  for (float& number : w.numbers) number *= alpha;
  for (float& number : w.bias) number *= beta;
  lower_linear(n, std::move(w));
}

void lower_mat_mul(const NodeView& n) {
  const Sizes& sizes = n.constant(1).tensor.sizes;
  n.wants(sizes.size() == 2, "expected a product with a constant matrix, got one with ", formats::listed(sizes));
  lower_linear(n, weight_of(n, 1, 1));
}

}  // namespace bie::onnx
