// Lowers elementwise operators, and sums of two values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "bie/kernels/code_tail.h"
#include "onnx/lowering.h"

namespace bie::onnx {
namespace {

runtime::TailNumbers activation(runtime::NetActivation kind, float slope = 1) {
  runtime::TailNumbers tail;
  tail.activation = kind;
  tail.slope = slope;
  return tail;
}

/// x * scale + shift, the numbers one per channel or none.
void lower_affine(const NodeView& n, const Value& x, std::vector<float> scale, std::vector<float> shift) {
  runtime::TailNumbers tail;
  tail.scale = std::move(scale);
  tail.shift = std::move(shift);
  n.lowering().set(n, {n.lowering().net().tail(n.lowering().shaped(x), tail), x.sizes, {}});
}

std::vector<float> mapped(std::vector<float> numbers, float (*f)(float)) {
  std::transform(numbers.begin(), numbers.end(), numbers.begin(), f);
  return numbers;
}

/// One of the two inputs is a constant; its number.
std::size_t constant_among(const NodeView& n) { return n.is_constant(1) ? 1 : 0; }
bool has_constant(const NodeView& n) { return n.is_constant(0) || n.is_constant(1); }

std::vector<float> channels_at(const NodeView& n, std::size_t input, const Value& x) {
  n.floats(input);
  return along_channels(n, n.constant(input).tensor, x.sizes);
}

/// The element of a constant that is broadcast to a place of `sizes`, along which it is counted from the last axis on.
std::size_t broadcast_at(const Tensor& t, const Sizes& sizes, std::int64_t place) {
  std::int64_t at = 0, step = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t along = place % sizes[sizes.size() - 1 - i];
    place /= sizes[sizes.size() - 1 - i];
    if (i >= t.sizes.size()) continue;
    const std::int64_t own = t.sizes[t.sizes.size() - 1 - i];
    if (own != 1) at += along * step;
    step *= own;
  }
  return static_cast<std::size_t>(at);
}

/// Both values, of the same sizes.
void wants_alike(const NodeView& n, const Value& a, const Value& b) {
  n.wants(a.sizes == b.sizes, "reads ", formats::listed(a.sizes), " and ", formats::listed(b.sizes),
          " a sample, which are to be alike");
}

/// Parameters of a QuantizeLinear or DequantizeLinear node: one scale and one zero point.
Steps steps_of(const NodeView& n) {
  const std::vector<float>& step = n.floats(1);
  n.wants(step.size() == 1, "expected one scale for a value, got ", step.size());
  n.wants(step[0] > 0, "has a scale that is not above 0");
  Steps steps{step[0], 0, 0, 255};
  constexpr std::int64_t none = 0, uint8 = 2, int8 = 3;  // ONNX's numbers of types
  const std::int64_t type = n.node().op == "QuantizeLinear" ? n.integer("output_dtype", none) : none;
  n.wants(type == none || type == uint8 || type == int8, "expected codes of type uint8 (2) or int8 (3), got type ",
          type);
  if (type == int8) steps.lo = -128, steps.hi = 127;
  if (!n.has(2)) return steps;
  const Tensor& zero = n.constant(2).tensor;
  n.wants(zero.type == Type::u8 || zero.type == Type::s8, "has a zero point that is neither uint8 nor int8");
  n.wants(zero.ints.size() == 1, "expected one zero point, got ", zero.ints.size());
  n.wants(type == none || (type == int8) == (zero.type == Type::s8), "has an output_dtype of ", type,
          " and a zero point of another type");
  if (zero.type == Type::s8) steps.lo = -128, steps.hi = 127;
  steps.zero = zero.ints[0];
  n.wants(steps.zero >= steps.lo && steps.zero <= steps.hi, "has a zero point out of its range");
  return steps;
}

/// (code - zero) * scale, one of both for each `block` elements along an axis.
void dequantize_blocks(const NodeView& n, const Tensor& codes, std::int64_t axis, std::int64_t block) {
  const auto rank = static_cast<std::int64_t>(codes.sizes.size());
  n.wants(axis >= 0 && axis < rank, "has axis ", axis, " of ", rank);
  Sizes sizes = codes.sizes;
  std::int64_t& along = sizes[static_cast<std::size_t>(axis)];
  const std::int64_t length = along, blocks = along = (along + block - 1) / block;
  const Tensor& scales = n.constant(1).tensor;
  n.wants(scales.sizes == sizes, "has scales of ", formats::listed(scales.sizes), ", blocks of ", block, " want ",
          formats::listed(sizes));
  n.wants(!n.has(2) || n.constant(2).tensor.sizes == sizes, "has zero points and scales of other sizes");
  std::int64_t inner = 1;
  for (std::int64_t i = axis + 1; i < rank; ++i) inner *= codes.sizes[static_cast<std::size_t>(i)];
  Constant result{{Type::f32, codes.sizes, {}, {}}, {}, {}};
  for (std::int64_t i = 0; i < codes.count(); ++i) {
    const std::int64_t outer = i / inner / length, place = i / inner % length / block;
    const auto at = static_cast<std::size_t>((outer * blocks + place) * inner + i % inner);
    const std::int64_t zero = n.has(2) ? n.ints(2)[at] : 0;
    result.tensor.floats.push_back(static_cast<float>(codes.ints[static_cast<std::size_t>(i)] - zero) *
                                   scales.floats[at]);
  }
  n.lowering().set(n, std::move(result));
}

/// The floats of a constant of codes.
void dequantize_constant(const NodeView& n) {
  const Tensor& codes = n.constant(0).tensor;
  n.wants(codes.type != Type::f32, "dequantises floats");
  const std::vector<float>& steps = n.floats(1);
  for (const float step : steps) n.wants(step > 0, "has a scale that is not above 0");
  const auto rank = static_cast<std::int64_t>(codes.sizes.size());
  std::int64_t axis = n.integer("axis", 1);
  if (axis < 0) axis += rank;
  const std::int64_t block = n.integer("block_size", 0);
  n.wants(block >= 0, "has a block_size of ", block);
  if (block > 0) return dequantize_blocks(n, codes, axis, block);
  if (steps.size() == 1) axis = 0;
  n.wants(steps.size() == 1 || (axis >= 0 && axis < rank &&
                                codes.sizes[static_cast<std::size_t>(axis)] == static_cast<std::int64_t>(steps.size())),
          "has ", steps.size(), " scales for a constant of ", formats::listed(codes.sizes));
  std::vector<std::int64_t> zeros(steps.size(), 0);
  if (n.has(2)) {
    n.wants(n.ints(2).size() == steps.size(), "has ", n.ints(2).size(), " zero points and ", steps.size(), " scales");
    zeros = n.ints(2);
  }
  std::int64_t inner = 1;
  for (std::int64_t i = axis + 1; i < rank; ++i) inner *= codes.sizes[static_cast<std::size_t>(i)];
  Constant result{{Type::f32, codes.sizes, {}, {}}, {}, steps, axis};
  for (std::int64_t i = 0; i < codes.count(); ++i) {
    const auto at = steps.size() == 1 ? 0 : static_cast<std::size_t>(i / inner) % steps.size();
    const auto code = static_cast<float>(codes.ints[static_cast<std::size_t>(i)] - zeros[at]);
    result.tensor.floats.push_back(code * steps[at]);
  }
  const std::int64_t centre = codes.type == Type::u8 ? 128 : 0;
  const bool is_centred = std::all_of(zeros.begin(), zeros.end(), [&](std::int64_t z) { return z == centre; });
  if (codes.type != Type::integer && is_centred) result.codes = codes;
  n.lowering().set(n, std::move(result));
}

}  // namespace

void fold_arithmetic(const NodeView& n) {
  const Tensor &a = n.constant(0).tensor, &b = n.constant(1).tensor;
  n.wants(a.type == b.type && (a.type == Type::f32 || a.type == Type::integer), "reads two types of numbers");
  Sizes sizes(std::max(a.sizes.size(), b.sizes.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto from_end = [i](const Sizes& s) { return i < s.size() ? s[s.size() - 1 - i] : 1; };
    const std::int64_t one = from_end(a.sizes), other = from_end(b.sizes);
    n.wants(one == other || one == 1 || other == 1, "reads constants of ", formats::listed(a.sizes), " and ",
            formats::listed(b.sizes));
    sizes[sizes.size() - 1 - i] = one == 1 ? other : one;
  }
  const std::string& op = n.node().op;
  const auto result_of = [&](auto x, auto y) {
    if (op == "Div" && a.type == Type::integer) n.wants(y != 0, "divides by 0");
    return op == "Add" ? x + y : op == "Sub" ? x - y : op == "Mul" ? x * y : x / y;
  };
  constexpr std::int64_t most = std::int64_t{1} << 31;
  Constant result{{a.type, sizes, {}, {}}, {}, {}};
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
    n.wants(count <= 1 << 26, "makes a constant of ", formats::listed(sizes));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t one = broadcast_at(a, sizes, i), other = broadcast_at(b, sizes, i);
    if (a.type == Type::f32) {
      result.tensor.floats.push_back(result_of(a.floats[one], b.floats[other]));
      continue;
    }
    const std::int64_t x = a.ints[one], y = b.ints[other];
    n.wants(x > -most && x < most && y > -most && y < most, "reads whole numbers beyond 31 bits");
    result.tensor.ints.push_back(result_of(x, y));
  }
  n.lowering().set(n, std::move(result));
}

std::vector<float> along_channels(const NodeView& n, const Tensor& tensor, const Sizes& sizes) {
  if (tensor.count() == 1) return std::vector<float>(static_cast<std::size_t>(sizes[0]), tensor.floats[0]);
  // From the right: behind the axis of the channels there are ones alone.
  const std::size_t rank = tensor.sizes.size(), axis = sizes.size();
  bool fits = rank >= axis && tensor.sizes[rank - axis] == sizes[0] && tensor.count() == sizes[0];
  fits = fits || (sizes.size() == 1 && rank == 1 && tensor.count() == sizes[0]);
  n.wants(fits, "expected a constant of one number or one a channel, got one of ", formats::listed(tensor.sizes),
          " for ", formats::listed(sizes), " a sample");
  return tensor.floats;
}

void norm_of(const NodeView& n, std::int64_t channels, std::vector<float>* scale, std::vector<float>* shift) {
  n.wants(n.integer("training_mode", 0) == 0, "is in training");
  n.wants(n.integer("spatial", 1) != 0, "has numbers of its own for each pixel");
  for (std::size_t i = 1; i < 5; ++i)
    n.wants(static_cast<std::int64_t>(n.floats(i).size()) == channels, "has ", n.floats(i).size(), " numbers for ",
            channels, " channels");
  const auto count = static_cast<std::size_t>(channels);
  const float eps = n.number("epsilon", 1e-5f);
  for (const float var : n.floats(4)) n.wants(var + eps > 0, "has a variance that cannot be");
  scale->resize(count);
  shift->resize(count);
  kernels::norm_numbers(channels, n.floats(3).data(), n.floats(4).data(), n.floats(1).data(), n.floats(2).data(), eps,
                        scale->data(), shift->data());
}

void lower_batch_norm(const NodeView& n) {
  const Value& x = n.value(0);
  std::vector<float> scale, shift;
  norm_of(n, x.sizes[0], &scale, &shift);
  lower_affine(n, x, std::move(scale), std::move(shift));
}

void lower_relu(const NodeView& n) {
  const Value& x = n.value(0);
  Lowering& to = n.lowering();
  to.set(n, {to.net().tail(to.floats(x), activation(runtime::NetActivation::relu)), x.sizes, {}});
}

void lower_leaky_relu(const NodeView& n) {
  const Value& x = n.value(0);
  Lowering& to = n.lowering();
  const auto bent = activation(runtime::NetActivation::prelu, n.number("alpha", 0.01f));
  to.set(n, {to.net().tail(to.floats(x), bent), x.sizes, {}});
}

void lower_prelu(const NodeView& n) {
  const Value& x = n.value(0);
  Lowering& to = n.lowering();
  const std::vector<float> slopes = channels_at(n, 1, x);
  const bool is_one = std::all_of(slopes.begin(), slopes.end(), [&](float slope) { return slope == slopes[0]; });
  const Symbol y = is_one ? to.net().tail(to.floats(x), activation(runtime::NetActivation::prelu, slopes[0]))
                          : to.net().channel_prelu(to.shaped(x), slopes);
  to.set(n, {y, x.sizes, {}});
}

void lower_clip(const NodeView& n) {
  const Value& x = n.value(0);
  Lowering& to = n.lowering();
  constexpr float most = std::numeric_limits<float>::max();
  const auto bound = [&](const char* name, std::size_t input, float otherwise) {
    if (!n.has(input)) return n.number(name, otherwise);
    n.wants(n.floats(input).size() == 1, "has bounds that are no numbers");
    return n.floats(input)[0];
  };
  const float lo = bound("min", 1, -most), hi = bound("max", 2, most);
  n.wants(lo <= hi, "has a least value above its largest");
  to.set(n, {to.net().clip(to.floats(x), lo, hi), x.sizes, {}});
}

void lower_sigmoid(const NodeView& n) {
  const Value& x = n.value(0);
  n.lowering().set(n, {n.lowering().net().sigmoid(n.lowering().floats(x)), x.sizes, {}});
}

void lower_softmax(const NodeView& n) {
  const Value& x = n.value(0);
  const auto rank = static_cast<std::int64_t>(x.sizes.size());
  std::int64_t axis = n.integer("axis", n.opset() < 13 ? 1 : -1);
  if (axis < 0) axis += rank + 1;
  // Before version 13 it is one of all that stands behind the axis.
  const bool is_whole = axis == 1 && (n.opset() < 13 || elements_of(x.sizes) == x.sizes[0]);
  n.wants(is_whole, "expected the features of a sample as its axis, got axis ", axis, " of ", rank + 1);
  Lowering& to = n.lowering();
  to.set(n, {to.net().softmax(to.features(x)), x.sizes, {}});
}

void lower_add(const NodeView& n) {
  Lowering& to = n.lowering();
  if (has_constant(n)) {
    const std::size_t constant = constant_among(n);
    const Value& x = n.value(1 - constant);
    return lower_affine(n, x, {}, channels_at(n, constant, x));
  }
  const Value &a = n.value(0), &b = n.value(1);
  wants_alike(n, a, b);
  const Symbol x = to.shaped(a), y = to.shaped(b);
  to.set(n, {to.net().tail(x, {}, y), a.sizes, {}});
}

void lower_sub(const NodeView& n) {
  Lowering& to = n.lowering();
  const auto negative = [](float v) { return -v; };
  if (n.is_constant(1)) {
    const Value& x = n.value(0);
    return lower_affine(n, x, {}, mapped(channels_at(n, 1, x), negative));
  }
  const Value& b = n.value(1);
  const std::vector<float> minus(static_cast<std::size_t>(b.sizes[0]), -1.0f);
  if (n.is_constant(0)) return lower_affine(n, b, minus, channels_at(n, 0, b));
  const Value& a = n.value(0);
  wants_alike(n, a, b);
  runtime::TailNumbers tail;
  tail.scale = minus;
  const Symbol x = to.shaped(a), y = to.shaped(b);
  to.set(n, {to.net().tail(y, tail, x), a.sizes, {}});
}

void lower_mul(const NodeView& n) {
  Lowering& to = n.lowering();
  if (has_constant(n)) {
    const std::size_t constant = constant_among(n);
    const Value& x = n.value(1 - constant);
    return lower_affine(n, x, channels_at(n, constant, x), {});
  }
  const bool second_is_larger = elements_of(n.value(1).sizes) > elements_of(n.value(0).sizes);
  const Value &a = n.value(second_is_larger ? 1 : 0), &b = n.value(second_is_larger ? 0 : 1);
  const bool of_channels = b.sizes.size() == 3 && a.sizes.size() == 3 && b.sizes == Sizes{a.sizes[0], 1, 1};
  if (!of_channels) wants_alike(n, a, b);
  const Symbol x = to.shaped(a), y = to.shaped(b);
  to.set(n, {to.net().multiply(x, y), a.sizes, {}});
}

void lower_div(const NodeView& n) {
  const Value& x = n.value(0);
  n.wants(n.is_constant(1), "divides by what depends on the net's input");
  std::vector<float> by = channels_at(n, 1, x);
  for (const float number : by) n.wants(std::isfinite(1 / number), "divides by 0");
  lower_affine(n, x, mapped(std::move(by), [](float v) { return 1 / v; }), {});
}

void lower_quantize(const NodeView& n) {
  n.wants(n.integer("block_size", 0) == 0, "expected one scale, got blocks");
  const Value& x = n.value(0);
  const Steps steps = steps_of(n);
  Lowering& to = n.lowering();
  // A value that was already rounded to these steps stays unchanged.
  const Symbol symbol = x.steps && *x.steps == steps ? x.symbol : to.floats(x);
  to.set(n, {symbol, x.sizes, steps, /*is_codes=*/true});
}

void lower_dequantize(const NodeView& n) {
  constexpr std::int64_t float32 = 1;
  const std::int64_t type = n.integer("output_dtype", float32);
  n.wants(type == float32 || type == 0, "expected floats of type float32 (1), got type ", type);
  if (n.is_constant(0)) return dequantize_constant(n);
  n.wants(n.integer("block_size", 0) == 0, "expected one scale, got blocks");
  const Value& x = n.value(0);
  n.wants(x.is_codes && x.steps, "reads floats");
  Steps steps = steps_of(n);
  if (!n.has(2)) steps.lo = x.steps->lo, steps.hi = x.steps->hi;
  n.wants(steps == *x.steps, "has a scale or zero point other than the QuantizeLinear before it");
  n.lowering().set(n, {x.symbol, x.sizes, steps});
}

}  // namespace bie::onnx
