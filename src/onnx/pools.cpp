// Windows over images that no product belongs to, and borders.
#include <algorithm>
#include <limits>

#include "onnx/lowering.h"

namespace bie::onnx {
namespace {

using Pair = std::array<std::int64_t, 2>;

const Value& image_of(const NodeView& n) {
  const Value& x = n.value(0);
  n.wants(x.sizes.size() == 3, "expected an image, got ", formats::listed(x.sizes), " a sample");
  return x;
}

runtime::PoolNumbers pool_of(const NodeView& n, const Sizes& image, bool* adds_border) {
  n.wants(n.has_attribute("kernel_shape"), "has no kernel_shape");
  const Pair kernel = pair_of(n, "kernel_shape", 1), stride = pair_of(n, "strides", 1);
  n.wants(pair_of(n, "dilations", 1) == Pair{1, 1}, "expected dilations of 1, got others");
  runtime::PoolNumbers pool{kernel, stride, pads_of(n, image, kernel, stride, {1, 1})};
  for (std::size_t i = 0; i < 2; ++i) {
    n.wants(pool.border[i] < kernel[i] && pool.border[2 + i] < kernel[i], "has pads that are not below its kernel");
    const std::int64_t room = image[1 + i] + pool.border[i] + pool.border[2 + i] - kernel[i];
    n.wants(room >= 0, "has windows larger than its image");
    if (n.integer("ceil_mode", 0) == 0) continue;
    std::int64_t count = (room + stride[i] - 1) / stride[i] + 1;
    if ((count - 1) * stride[i] >= image[1 + i] + pool.border[i]) --count;  // it would begin behind the image
    const std::int64_t whole = (count - 1) * stride[i] + kernel[i] - image[1 + i] - pool.border[i];
    if (whole <= pool.border[2 + i]) continue;
    pool.border[2 + i] = whole;
    *adds_border = true;
  }
  return pool;
}

/// The sizes that ReduceMax and ReduceMean leave of an image: one number per channel.
Sizes sizes_of_channels(const NodeView& n, const Value& x) {
  Sizes axes = n.has(1) ? n.ints(1) : n.integers("axes", {});
  for (std::int64_t& axis : axes) axis += axis < 0 ? 4 : 0;
  std::sort(axes.begin(), axes.end());
  n.wants(axes == Sizes{2, 3}, "is not over the rows and columns of an image");
  return n.integer("keepdims", 1) != 0 ? Sizes{x.sizes[0], 1, 1} : Sizes{x.sizes[0]};
}

Symbol largest_of_channels(const NodeView& n, const Value& x) {
  n.wants(x.sizes[1] <= 1 << 16 && x.sizes[2] <= 1 << 16, "has an image with sides above 65536");
  const Pair whole{x.sizes[1], x.sizes[2]};
  return n.lowering().net().max_pool(n.lowering().source(x), {whole, whole});
}

}  // namespace

Pair pair_of(const NodeView& n, const char* attribute, std::int64_t otherwise) {
  const Sizes numbers = n.integers(attribute, {otherwise, otherwise});
  n.wants(numbers.size() == 2, "expected two ", attribute, ", as those of images are, got ", numbers.size());
  for (const std::int64_t number : numbers)
    n.wants(number >= 1 && number <= 1 << 16, "expected ", attribute, " of 1 to 65536, got ", number);
  return {numbers[0], numbers[1]};
}

std::array<std::int64_t, 4> pads_of(const NodeView& n, const Sizes& image, const Pair& kernel, const Pair& stride,
                                    const Pair& dilation) {
  const std::string kind = n.text("auto_pad", "NOTSET");
  if (kind == "VALID") return {0, 0, 0, 0};
  if (kind == "SAME_UPPER" || kind == "SAME_LOWER") {
    std::array<std::int64_t, 4> pads{};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t count = (image[1 + i] + stride[i] - 1) / stride[i];
      const std::int64_t whole = (count - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - image[1 + i];
      const std::int64_t all = std::max<std::int64_t>(whole, 0), less = all / 2;
      pads[i] = kind == "SAME_UPPER" ? less : all - less;
      pads[2 + i] = all - pads[i];
    }
    return pads;
  }
  n.wants(kind == "NOTSET" || kind.empty(), "has an auto_pad of ", formats::in_quotes(kind));
  const Sizes pads = n.integers("pads", {0, 0, 0, 0});
  n.wants(pads.size() == 4, "expected four pads, as those of images are, got ", pads.size());
  for (const std::int64_t pad : pads) n.wants(pad >= 0 && pad <= 1 << 16, "expected pads of 0 to 65536, got ", pad);
  return {pads[0], pads[1], pads[2], pads[3]};
}

void lower_max_pool(const NodeView& n) {
  const Value& x = image_of(n);
  bool adds_border = false;
  const runtime::PoolNumbers pool = pool_of(n, x.sizes, &adds_border);
  Lowering& to = n.lowering();
  runtime::NetBuilder& net = to.net();
  const Symbol image = to.source(x);  // the largest of rounded ones is the largest rounded
  const bool is_square = pool.kernel[0] == pool.kernel[1] && pool.kernel[0] <= 16 && pool.stride == pool.kernel &&
                         pool.border == std::array<std::int64_t, 4>{0, 0, 0, 0};
  runtime::TailNumbers tail;
  tail.pool = pool.kernel[0];
  const Symbol y = is_square ? net.tail(image, tail) : net.max_pool(image, pool);
  to.set(n, {y, Sizes(net.sizes(y)), x.steps, x.is_codes});
}

void lower_average_pool(const NodeView& n) {
  const Value& x = image_of(n);
  bool adds_border = false;
  const runtime::PoolNumbers pool = pool_of(n, x.sizes, &adds_border);
  const bool counts = n.integer("count_include_pad", 0) != 0;
  n.wants(!(counts && adds_border), "expected count_include_pad or ceil_mode, got both");
  Lowering& to = n.lowering();
  const Symbol y = to.net().average_pool(to.shaped(x), pool, counts);
  to.set(n, {y, Sizes(to.net().sizes(y)), {}});
}

void lower_global_average_pool(const NodeView& n) {
  const Value& x = image_of(n);
  Lowering& to = n.lowering();
  to.set(n, {to.net().plane_means(to.shaped(x)), {x.sizes[0], 1, 1}, {}});
}

void lower_global_max_pool(const NodeView& n) {
  const Value& x = image_of(n);
  n.lowering().set(n, {largest_of_channels(n, x), {x.sizes[0], 1, 1}, x.steps});
}

void lower_reduce_max(const NodeView& n) {
  const Value& x = image_of(n);
  const Sizes sizes = sizes_of_channels(n, x);
  n.lowering().set(n, {largest_of_channels(n, x), sizes, x.steps});
}

void lower_reduce_mean(const NodeView& n) {
  const Value& x = image_of(n);
  const Sizes sizes = sizes_of_channels(n, x);
  Lowering& to = n.lowering();
  to.set(n, {to.net().plane_means(to.shaped(x)), sizes, {}});
}

void lower_pad(const NodeView& n) {
  const Value& x = image_of(n);
  n.wants(n.text("mode", "constant") == "constant", "has a mode other than constant");
  const Sizes pads = n.has(1) ? n.ints(1) : n.integers("pads", {});
  n.wants(!n.has(3), "expected the pads of all axes, got those of some");
  n.wants(pads.size() == 8 && pads[0] == 0 && pads[1] == 0 && pads[4] == 0 && pads[5] == 0,
          "pads more than rows and columns");
  for (const std::int64_t pad : pads) n.wants(pad >= 0 && pad <= 1 << 16, "expected pads of 0 to 65536, got ", pad);
  float value = n.number("value", 0);
  if (n.has(2)) {
    n.wants(n.floats(2).size() == 1, "has values that are no number");
    value = n.floats(2)[0];
  }
  Lowering& to = n.lowering();
  const Symbol y = to.net().border(to.shaped(x), {pads[2], pads[3], pads[6], pads[7]}, value);
  to.set(n, {y, Sizes(to.net().sizes(y)), {}});
}

}  // namespace bie::onnx
