// Functions of single numbers, layer normalisation, the largest of each channel, and parts of values.
#include <algorithm>
#include <cmath>

#include "bie/kernels/functions.h"
#include "onnx/lowering.h"

namespace bie::onnx {
namespace {

using kernels::Function;

void set_function(const NodeView& n, Function function, float a = 0, float b = 0) {
  const Value& x = n.value(0);
  Lowering& to = n.lowering();
  to.set(n, {to.net().function(to.floats(x), function, a, b), x.sizes, {}});
}

/// The elements of an axis that Slice or Split takes: `count` from `first` on.
struct Part {
  std::size_t axis;  ///< of a sample
  std::int64_t first, count;
};

/// Sets the node's output of this number to the slice of x that `parts` select.
void set_parts(const NodeView& n, const Value& x, const std::vector<Part>& parts, std::size_t output) {
  std::array<std::int64_t, 3> first{};
  Sizes sizes = x.sizes;
  for (const Part& part : parts) {
    n.wants(part.count > 0, "leaves nothing of axis ", part.axis + 1);
    first[part.axis] += part.first;
    sizes[part.axis] = part.count;
  }
  Lowering& to = n.lowering();
  const Symbol from = to.source(x);
  to.set(n.node().outputs[output], {sizes == x.sizes ? from : to.net().crop(from, first, sizes), sizes, x.steps});
}

/// An axis of a sample, of one that counts the batch.
std::size_t axis_in_sample(const NodeView& n, std::int64_t axis, const Value& x) {
  const std::int64_t place = axis_of(n, axis, static_cast<std::int64_t>(x.sizes.size()) + 1);
  n.wants(place > 0, "takes the batch apart");
  return static_cast<std::size_t>(place - 1);
}

/// Where a slice begins and ends along an axis of `size` elements: below 0 counted from the end, then within the axis.
Part slice_of(std::int64_t start, std::int64_t end, std::int64_t size, std::size_t axis) {
  const auto place = [size](std::int64_t at) {
    const std::int64_t within = std::clamp(at, -size, size);
    return within < 0 ? within + size : within;
  };
  return {axis, place(start), std::max<std::int64_t>(0, place(end) - place(start))};
}

struct SliceNumbers {
  Sizes starts, ends, axes;
};

SliceNumbers slice_numbers(const NodeView& n) {
  const bool has_inputs = n.opset() >= 10;
  SliceNumbers s;
  s.starts = has_inputs ? n.ints(1) : n.integers("starts", {});
  s.ends = has_inputs ? n.ints(2) : n.integers("ends", {});
  for (std::size_t i = 0; i < s.starts.size(); ++i) s.axes.push_back(static_cast<std::int64_t>(i));
  if (has_inputs && n.has(3)) s.axes = n.ints(3);
  if (!has_inputs) s.axes = n.integers("axes", s.axes);
  n.wants(s.starts.size() == s.ends.size() && s.starts.size() == s.axes.size(),
          "has starts, ends and axes of different counts");
  if (has_inputs && n.has(4))
    for (const std::int64_t step : n.ints(4)) n.wants(step == 1, "expected steps of 1, got ", step);
  return s;
}

void slice_constant(const NodeView& n, const SliceNumbers& s) {
  const Tensor& from = n.constant(0).tensor;
  n.wants(from.sizes.size() == 1 && s.axes.size() == 1 && (s.axes[0] == 0 || s.axes[0] == -1),
          "expected a part of a list, got one of a constant of ", formats::listed(from.sizes));
  const Part part = slice_of(s.starts[0], s.ends[0], from.sizes[0], 0);
  const auto taken = [&](const auto& numbers) {
    auto result = numbers;
    if (!numbers.empty()) {
      result.erase(result.begin() + part.first + part.count, result.end());
      result.erase(result.begin(), result.begin() + part.first);
    }
    return result;
  };
  n.lowering().set(n, Constant{{from.type, {part.count}, taken(from.floats), taken(from.ints)}, {}, {}});
}

}  // namespace

void lower_hard_sigmoid(const NodeView& n) {
  set_function(n, Function::hard_sigmoid, n.number("alpha", 0.2f), n.number("beta", 0.5f));
}
void lower_hard_swish(const NodeView& n) { set_function(n, Function::hard_swish); }
void lower_tanh(const NodeView& n) { set_function(n, Function::tanh); }
void lower_elu(const NodeView& n) { set_function(n, Function::elu, n.number("alpha", 1)); }
void lower_softplus(const NodeView& n) { set_function(n, Function::softplus); }
void lower_erf(const NodeView& n) { set_function(n, Function::erf); }

void lower_gelu(const NodeView& n) {
  const std::string kind = n.text("approximate", "none");
  n.wants(kind == "none" || kind == "tanh", "expected an approximate of \"none\" or \"tanh\", got ",
          formats::in_quotes(kind));
  set_function(n, kind == "none" ? Function::gelu : Function::gelu_tanh);
}

void lower_pow(const NodeView& n) {
  n.wants(n.is_constant(1), "has an exponent that depends on the net's input");
  const Tensor& exponent = n.constant(1).tensor;
  n.wants(exponent.count() == 1, "expected one exponent, got ", exponent.count());
  const float number = exponent.type == Type::f32 ? n.floats(1)[0] : static_cast<float>(exponent.ints[0]);
  set_function(n, Function::power, number);
}

void lower_layer_norm(const NodeView& n) {
  const Value& x = n.value(0);
  const std::size_t axis = axis_in_sample(n, n.integer("axis", -1), x);
  n.wants(n.integer("stash_type", 1) == 1, "has a stash_type other than float32");
  const Sizes normed(x.sizes.begin() + static_cast<std::ptrdiff_t>(axis), x.sizes.end());
  const auto numbers = [&](std::size_t input) {
    if (!n.has(input)) return std::vector<float>();
    const std::vector<float> given = n.floats(input);
    n.wants(n.constant(input).tensor.sizes == normed, "expected numbers of ", formats::listed(normed), ", got ",
            formats::listed(n.constant(input).tensor.sizes));
    return given;
  };
  Lowering& to = n.lowering();
  to.set(n, {to.net().layer_norm(to.shaped(x), n.number("epsilon", 1e-5f), numbers(1), numbers(2),
                                 static_cast<std::int64_t>(axis)),
             x.sizes,
             {}});
}

void lower_compare(const NodeView& n) {
  using kernels::Comparison;
  const std::size_t constant = n.is_constant(1) ? 1 : 0;
  n.wants(n.is_constant(constant),
          "expected a comparison with a number, got one of two values that depend on the net's input");
  const std::vector<float>& limit = n.floats(constant);
  n.wants(limit.size() == 1, "expected one number to compare with, got ", limit.size());
  // A number on the left turns the comparison around.
  const std::string& op = n.node().op;
  const bool is_equal = op == "Equal", is_greater = (op.rfind("Greater", 0) == 0) == (constant == 1);
  const bool or_equal = op.size() > 7;
  const Comparison comparison = is_equal     ? Comparison::equal
                                : is_greater ? (or_equal ? Comparison::greater_or_equal : Comparison::greater)
                                             : (or_equal ? Comparison::less_or_equal : Comparison::less);
  const Value& x = n.value(1 - constant);
  n.lowering().set(n, {n.lowering().shaped(x), x.sizes, {}, false, Compared{comparison, limit[0]}});
}

void lower_where(const NodeView& n) {
  n.wants(!n.is_constant(0), "expected a comparison of a value with a number, got a constant");
  const Value& x = n.value(0);
  n.wants(x.compared.has_value(), "expected a comparison of a value with a number, got floats");
  Lowering& to = n.lowering();
  const auto branch = [&](std::size_t input) {
    if (n.is_constant(input)) {
      const std::vector<float>& number = n.floats(input);
      n.wants(number.size() == 1, "expected one number or a value of ", formats::listed(x.sizes), ", got ",
              number.size(), " numbers");
      return to.net().clip(x.symbol, number[0], number[0]);  // that number everywhere
    }
    const Value& value = n.value(input);
    n.wants(!value.compared, "chooses truth values");
    n.wants(value.sizes == x.sizes, "expected one number or a value of ", formats::listed(x.sizes), ", got ",
            formats::listed(value.sizes));
    return to.shaped(value);
  };
  const Symbol yes = branch(1), no = branch(2);
  to.set(n, {to.net().choose(x.symbol, x.compared->comparison, x.compared->limit, yes, no), x.sizes, {}});
}

void lower_slice(const NodeView& n) {
  const SliceNumbers s = slice_numbers(n);
  if (n.is_constant(0)) return slice_constant(n, s);
  const Value& x = n.value(0);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < s.axes.size(); ++i) {
    const std::size_t axis = axis_in_sample(n, s.axes[i], x);
    for (const Part& other : parts) n.wants(other.axis != axis, "names axis ", axis + 1, " twice");
    parts.push_back(slice_of(s.starts[i], s.ends[i], x.sizes[axis], axis));
  }
  set_parts(n, x, parts, 0);
}

void lower_split(const NodeView& n) {
  const Value& x = n.value(0);
  const std::size_t axis = axis_in_sample(n, n.integer("axis", 0), x);
  const auto count = static_cast<std::int64_t>(n.node().outputs.size());
  const std::int64_t size = x.sizes[axis];
  n.wants(n.integer("num_outputs", count) == count, "has a num_outputs that is not ", count);
  Sizes sizes = n.has(1) ? n.ints(1) : n.integers("split", {});
  if (sizes.empty()) {
    const std::int64_t each = (size + count - 1) / count;
    n.wants(n.opset() >= 18 || size % count == 0, "splits ", size, " elements into ", count, " equal parts");
    for (std::int64_t i = 0; i < count; ++i) sizes.push_back(std::min(each, size - i * each));
  }
  std::int64_t all = 0;
  for (const std::int64_t part : sizes) {
    n.wants(part > 0 && part <= size, "has a part of ", part, " of ", size);
    all += part;
  }
  n.wants(static_cast<std::int64_t>(sizes.size()) == count && all == size, "has parts of ", formats::listed(sizes),
          " for ", size, " elements and ", count, " outputs");
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!n.node().outputs[i].empty()) set_parts(n, x, {{axis, first, sizes[i]}}, i);
    first += sizes[i];
  }
}

}  // namespace bie::onnx
