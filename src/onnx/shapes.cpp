// Operators that move or name elements, of values and of constants.
#include <algorithm>

#include "onnx/lowering.h"

namespace bie::onnx {
namespace {

std::int64_t rank_of(const Value& x) { return static_cast<std::int64_t>(x.sizes.size()) + 1; }

/// The same elements under other sizes.
void set_sizes(const NodeView& n, const Value& x, Sizes sizes) {
  n.wants(elements_of(sizes) == elements_of(x.sizes), "makes ", formats::listed(sizes), " of ",
          formats::listed(x.sizes));
  n.wants(sizes.size() == 1 || sizes.size() == 3, "expected features or an image a sample, got ",
          formats::listed(sizes));
  // Channels that are taken apart are others.
  n.lowering().set(n, {x.symbol, std::move(sizes), x.steps, x.is_codes});
}

void set_ints(const NodeView& n, std::vector<std::int64_t> ints, Sizes sizes) {
  n.lowering().set(n, Constant{{Type::integer, std::move(sizes), {}, std::move(ints)}, {}, {}});
}

/// The axes of Squeeze and Unsqueeze.
Sizes axes_of(const NodeView& n) { return n.has(1) ? n.ints(1) : n.integers("axes", {}); }

/// [batch or -1, sizes of a sample] that a Reshape asks for, resolved.
Sizes reshaped(const NodeView& n, const Sizes& wanted, const Value& x) {
  n.wants(wanted.size() >= 2, "leaves no axis beside the batch");
  Sizes sizes(wanted.begin() + 1, wanted.end());
  std::int64_t open = -1, known = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && n.integer("allowzero", 0) == 0 && i < x.sizes.size()) sizes[i] = x.sizes[i];
    n.wants(sizes[i] >= 1 || sizes[i] == -1, "leaves a size of ", sizes[i]);
    n.wants(sizes[i] <= 1 << 26 && known <= 1 << 26, "leaves sizes beyond all memories");
    if (sizes[i] == -1) {
      n.wants(open < 0, "leaves two sizes open");
      open = static_cast<std::int64_t>(i);
    } else {
      known *= sizes[i];
    }
  }
  if (open >= 0) sizes[static_cast<std::size_t>(open)] = elements_of(x.sizes) / known;
  const std::int64_t batch = wanted[0] == open_batch ? -1 : wanted[0];
  n.wants(elements_of(sizes) == elements_of(x.sizes) && (batch == -1 || batch == 0 || batch == n.lowering().batch()),
          "makes ", formats::listed(wanted), " of [batch] and ", formats::listed(x.sizes),
          ", the batch is to stay as it is");
  return sizes;
}

void transpose_constant(const NodeView& n, const Constant& from, const Sizes& order) {
  const Tensor& t = from.tensor;
  const std::size_t rank = t.sizes.size();
  Sizes steps(rank, 1), sizes(rank), to_steps(rank);
  for (std::size_t i = rank; i-- > 1;) steps[i - 1] = steps[i] * t.sizes[i];
  for (std::size_t i = 0; i < rank; ++i) {
    sizes[i] = t.sizes[static_cast<std::size_t>(order[i])];
    to_steps[i] = steps[static_cast<std::size_t>(order[i])];
  }
  const auto turned = [&](const auto& numbers) {
    auto result = numbers;
    Sizes at(rank, 0);
    for (auto& number : result) {
      std::int64_t place = 0;
      for (std::size_t i = 0; i < rank; ++i) place += at[i] * to_steps[i];
      number = numbers[static_cast<std::size_t>(place)];
      for (std::size_t i = rank; i-- > 0 && ++at[i] == sizes[i];) at[i] = 0;
    }
    return result;
  };
  Constant result{{t.type, sizes, turned(t.floats), turned(t.ints)}, {}, from.steps};
  if (from.codes) result.codes = Tensor{from.codes->type, sizes, {}, turned(from.codes->ints)};
  for (std::size_t i = 0; i < rank; ++i)
    if (order[i] == from.axis) result.axis = static_cast<std::int64_t>(i);
  n.lowering().set(n, std::move(result));
}

/// A constant under other sizes; steps of slices would belong to others.
void resize_constant(const NodeView& n, const Constant& from, Sizes sizes) {
  n.wants(elements_of(sizes) == from.tensor.count(), "makes ", formats::listed(sizes), " of a constant of ",
          formats::listed(from.tensor.sizes));
  Constant result{from.tensor, {}, {}};
  result.tensor.sizes = std::move(sizes);
  n.lowering().set(n, std::move(result));
}

}  // namespace

std::int64_t axis_of(const NodeView& n, std::int64_t axis, std::int64_t rank) {
  n.wants(axis >= -rank && axis < rank, "has axis ", axis, " of ", rank);
  return axis < 0 ? axis + rank : axis;
}

void lower_constant(const NodeView& n) {
  const auto& attributes = n.node().attributes;
  if (const auto found = attributes.find("value"); found != attributes.end() && found->second.has_tensor)
    return n.lowering().set(n, Constant{found->second.tensor, {}, {}});
  for (const char* name : {"value_float", "value_floats", "value_int", "value_ints"}) {
    const auto found = attributes.find(name);
    if (found == attributes.end()) continue;
    const Attribute& a = found->second;
    const bool is_float = std::string(name).find("float") != std::string::npos,
               is_list = std::string(name).back() == 's';
    const auto count = static_cast<std::int64_t>(is_float ? a.floats.size() : a.ints.size());
    n.wants(is_list || count == 1, name, " is no number");
    return n.lowering().set(
        n, Constant{{is_float ? Type::f32 : Type::integer, is_list ? Sizes{count} : Sizes{},
                     is_float ? a.floats : std::vector<float>{}, is_float ? std::vector<std::int64_t>{} : a.ints},
                    {},
                    {}});
  }
  n.fail("is of no kind that a net has");
}

void lower_same(const NodeView& n) {
  if (n.is_constant(0)) return n.lowering().set(n, Constant(n.constant(0)));
  if (n.node().op == "Dropout" && n.has(2)) n.wants(n.ints(2) == Sizes{0}, "is in training");
  n.lowering().set(n, Value(n.value(0)));
}

void lower_flatten(const NodeView& n) {
  const Value& x = n.value(0);
  const std::int64_t axis = axis_of(n, n.integer("axis", 1), rank_of(x));
  n.wants(axis == 1, "expected the batch alone to be kept, got ", axis, " axes");
  set_sizes(n, x, {elements_of(x.sizes)});
}

void lower_reshape(const NodeView& n) {
  const Sizes& wanted = n.ints(1);
  if (n.is_constant(0)) {
    Sizes sizes = wanted;
    std::int64_t known = 1, open = -1;
    const Tensor& from = n.constant(0).tensor;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0 && n.integer("allowzero", 0) == 0 && i < from.sizes.size()) sizes[i] = from.sizes[i];
      n.wants(sizes[i] >= -1 && sizes[i] <= 1 << 28 && known <= 1 << 28, "leaves a size of ", sizes[i]);
      if (sizes[i] == -1)
        open = static_cast<std::int64_t>(i);
      else
        known *= sizes[i];
    }
    if (open >= 0 && known > 0) sizes[static_cast<std::size_t>(open)] = from.count() / known;
    return resize_constant(n, n.constant(0), std::move(sizes));
  }
  const Value& x = n.value(0);
  set_sizes(n, x, reshaped(n, wanted, x));
}

void lower_squeeze(const NodeView& n) {
  Sizes axes = axes_of(n);
  if (n.is_constant(0)) {
    const Constant& from = n.constant(0);
    const auto rank = static_cast<std::int64_t>(from.tensor.sizes.size());
    for (std::int64_t& axis : axes) axis = axis_of(n, axis, rank);
    Sizes sizes;
    for (std::int64_t i = 0; i < rank; ++i) {
      const std::int64_t size = from.tensor.sizes[static_cast<std::size_t>(i)];
      const bool goes = axes.empty() ? size == 1 : std::count(axes.begin(), axes.end(), i) > 0;
      if (!goes) sizes.push_back(size);
    }
    return resize_constant(n, from, std::move(sizes));
  }
  const Value& x = n.value(0);
  n.wants(!axes.empty(), "names no axes");
  Sizes sizes;
  for (std::int64_t& axis : axes) axis = axis_of(n, axis, rank_of(x));
  for (std::int64_t i = 1; i < rank_of(x); ++i) {
    const std::int64_t size = x.sizes[static_cast<std::size_t>(i - 1)];
    if (std::count(axes.begin(), axes.end(), i) == 0)
      sizes.push_back(size);
    else
      n.wants(size == 1, "takes away an axis of size ", size);
  }
  n.wants(std::count(axes.begin(), axes.end(), 0) == 0, "takes away the batch");
  set_sizes(n, x, std::move(sizes));
}

void lower_unsqueeze(const NodeView& n) {
  Sizes axes = axes_of(n);
  const bool is_constant = n.is_constant(0);
  Sizes sizes;
  if (is_constant)
    sizes = n.constant(0).tensor.sizes;
  else
    sizes = n.value(0).sizes, sizes.insert(sizes.begin(), -1);
  n.wants(axes.size() <= 8, "has ", axes.size(), " axes");
  const auto rank = static_cast<std::int64_t>(sizes.size() + axes.size());
  for (std::int64_t& axis : axes) axis = axis_of(n, axis, rank);
  std::sort(axes.begin(), axes.end());
  for (const std::int64_t axis : axes) {
    n.wants(axis <= static_cast<std::int64_t>(sizes.size()) && (is_constant || axis > 0), "has axes that cannot be");
    sizes.insert(sizes.begin() + axis, 1);
  }
  if (is_constant) return resize_constant(n, n.constant(0), std::move(sizes));
  sizes.erase(sizes.begin());
  set_sizes(n, n.value(0), std::move(sizes));
}

void lower_transpose(const NodeView& n) {
  const bool is_constant = n.is_constant(0);
  const std::size_t rank = is_constant ? n.constant(0).tensor.sizes.size() : n.value(0).sizes.size() + 1;
  Sizes backwards;
  for (std::size_t i = rank; i-- > 0;) backwards.push_back(static_cast<std::int64_t>(i));
  const Sizes order = n.integers("perm", backwards);
  Sizes sorted = order, ascending(backwards.rbegin(), backwards.rend());
  std::sort(sorted.begin(), sorted.end());
  n.wants(sorted == ascending, "expected a perm that orders ", rank, " axes, got ", formats::listed(order));
  if (is_constant) return transpose_constant(n, n.constant(0), order);
  const Value& x = n.value(0);
  n.wants(order[0] == 0, "moves the batch");
  Lowering& to = n.lowering();
  if (order == ascending) return to.set(n, Value(x));
  Sizes sizes;
  for (std::size_t i = 1; i < rank; ++i) sizes.push_back(x.sizes[static_cast<std::size_t>(order[i] - 1)]);
  const Symbol y = to.net().transpose(to.source(x), {order[1] - 1, order[2] - 1, order[3] - 1});
  to.set(n, {y, std::move(sizes), x.steps, x.is_codes});
}

void lower_concat(const NodeView& n) {
  const std::size_t count = n.node().inputs.size();
  bool are_constants = count > 0;
  for (std::size_t i = 0; i < count; ++i) are_constants = are_constants && n.is_constant(i);
  if (are_constants) {
    std::vector<std::int64_t> all;
    for (std::size_t i = 0; i < count; ++i) {
      n.wants(n.constant(i).tensor.sizes.size() == 1, "expected constants that are lists, got others");
      all.insert(all.end(), n.ints(i).begin(), n.ints(i).end());
    }
    const auto size = static_cast<std::int64_t>(all.size());
    return set_ints(n, std::move(all), {size});
  }
  n.wants(count >= 1 && count <= 64, "expected 1 to 64 values to be joined, got ", count);
  Sizes sizes = n.value(0).sizes;
  Lowering& to = n.lowering();
  n.wants(axis_of(n, n.integer("axis", 1), rank_of(n.value(0))) == 1, "expected the channels as its axis, got axis ",
          n.integer("axis", 1));
  for (std::size_t i = 1; i < count; ++i) {
    Sizes others = n.value(i).sizes;
    sizes[0] += others[0];
    others[0] = n.value(0).sizes[0];
    n.wants(others == n.value(0).sizes, "joins ", formats::listed(n.value(0).sizes), " and ",
            formats::listed(n.value(i).sizes));
  }
  std::vector<Symbol> parts;
  for (std::size_t i = 0; i < count; ++i) parts.push_back(to.shaped(n.value(i)));
  to.set(n, {to.net().concat(parts), std::move(sizes), {}});
}

void lower_shape(const NodeView& n) {
  Sizes sizes;
  if (n.is_constant(0)) {
    sizes = n.constant(0).tensor.sizes;
  } else {
    sizes = n.value(0).sizes;
    const std::int64_t batch = n.lowering().batch();
    sizes.insert(sizes.begin(), batch < 0 ? open_batch : batch);
  }
  n.wants(n.integer("start", 0) == 0 && !n.has_attribute("end"), "takes a part of the shape");
  const auto rank = static_cast<std::int64_t>(sizes.size());
  set_ints(n, std::move(sizes), {rank});
}

void lower_gather(const NodeView& n) {
  const Tensor& from = n.constant(0).tensor;
  const Tensor& at = n.constant(1).tensor;
  n.wants(n.integer("axis", 0) == 0 && from.sizes.size() == 1 && at.sizes.size() <= 1,
          "gathers from other than a list");
  std::vector<std::int64_t> found;
  for (const std::int64_t place : n.ints(1))
    found.push_back(n.ints(0)[static_cast<std::size_t>(axis_of(n, place, from.sizes[0]))]);
  set_ints(n, std::move(found), Sizes(at.sizes));
}

void lower_cast(const NodeView& n) {
  constexpr std::int64_t to_float = 1, to_int32 = 6, to_int64 = 7;
  const std::int64_t to = n.integer("to", 0);
  if (!n.is_constant(0)) {
    n.wants(to == to_float, "makes other than floats");
    return n.lowering().set(n, Value(n.value(0)));
  }
  const Tensor& from = n.constant(0).tensor;
  const bool fits = from.type == Type::f32 ? to == to_float : to == to_int32 || to == to_int64;
  n.wants(fits, "makes numbers of another kind");
  Constant result(n.constant(0));
  if (from.type != Type::f32) result.tensor.type = Type::integer;
  n.lowering().set(n, std::move(result));
}

}  // namespace bie::onnx
