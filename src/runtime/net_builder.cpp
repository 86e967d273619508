#include "bie/runtime/net_builder.h"

#include <cstring>

#include "runtime/graph.h"

namespace bie::runtime {
namespace {

using formats::NetElement, formats::NetFile, formats::NetNode;

std::vector<std::int64_t> window_ints(const WindowNumbers& w) {
  return {w.out_channels, w.kernel[0],  w.kernel[1],   w.stride[0],   w.stride[1],
          w.padding[0],   w.padding[1], w.dilation[0], w.dilation[1], w.groups};
}

std::vector<std::int64_t> pool_ints(const PoolNumbers& p) {
  std::vector<std::int64_t> ints = {p.kernel[0], p.kernel[1], p.stride[0], p.stride[1]};
  ints.insert(ints.end(), p.border.begin(), p.border.end());
  return ints;
}

}  // namespace

Symbol NetBuilder::input(std::vector<std::int64_t> sizes) {
  net_.values.push_back({NetElement::f32, std::move(sizes)});
  net_.inputs.push_back(static_cast<Symbol>(net_.values.size() - 1));
  return net_.inputs.back();
}

Symbol NetBuilder::add(NetOp op, std::vector<Symbol> inputs, std::vector<std::int64_t> sizes,
                       std::vector<std::int64_t> ints, std::vector<float> floats, std::vector<std::uint32_t> blobs) {
  const auto output = static_cast<Symbol>(net_.values.size());
  for (const Symbol input : inputs) set_read(input);
  net_.values.push_back({NetElement::f32, std::move(sizes)});
  net_.nodes.push_back({static_cast<std::uint32_t>(op), std::move(inputs), output, std::move(ints), std::move(floats),
                        std::move(blobs)});
  return output;
}

void NetBuilder::set_read(Symbol value) {
  if (value >= is_read_.size()) is_read_.resize(value + 1);
  is_read_[value] = true;
}

std::uint32_t NetBuilder::floats_blob(const std::vector<float>& numbers) {
  if (numbers.empty()) return formats::no_blob;
  std::vector<std::uint8_t> bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return formats::add_blob(net_, std::move(bytes));
}

std::vector<std::int64_t> NetBuilder::window_sizes(Symbol x, const WindowNumbers& w) const {
  if (sizes(x).size() != 3) return {w.out_channels};  // which the check refuses
  NetNode node{static_cast<std::uint32_t>(NetOp::float_conv2d), {x}, x, window_ints(w), {}, {}};
  const kernels::Conv2dShape shape = conv_shape(node, net_.values[x], 1);
  return {w.out_channels, shape.out_h(), shape.out_w()};
}

Symbol NetBuilder::linear(Symbol x, std::int64_t outputs, const CodedWeight& w) {
  const std::uint32_t weight = formats::add_blob(net_, w.weight), bias = floats_blob(w.bias);
  return add(NetOp::linear, {x}, {outputs}, {w.bits, outputs}, {w.step, w.scale}, {weight, bias});
}

Symbol NetBuilder::conv2d(Symbol x, const WindowNumbers& window, const CodedWeight& w, int pad_code) {
  std::vector<std::int64_t> ints = window_ints(window);
  ints.insert(ints.begin(), w.bits);
  ints.push_back(pad_code);
  const std::uint32_t weight = formats::add_blob(net_, w.weight), bias = floats_blob(w.bias);
  return add(NetOp::conv2d, {x}, window_sizes(x, window), std::move(ints), {w.step, w.scale}, {weight, bias});
}

Symbol NetBuilder::float_linear(Symbol x, std::int64_t outputs, const std::vector<float>& weight,
                                const std::vector<float>& bias) {
  const std::uint32_t numbers = floats_blob(weight), added = floats_blob(bias);
  return add(NetOp::float_linear, {x}, {outputs}, {outputs}, {}, {numbers, added});
}

Symbol NetBuilder::float_conv2d(Symbol x, const WindowNumbers& window, const std::vector<float>& weight,
                                const std::vector<float>& bias) {
  const std::uint32_t numbers = floats_blob(weight), added = floats_blob(bias);
  return add(NetOp::float_conv2d, {x}, window_sizes(x, window), window_ints(window), {}, {numbers, added});
}

Symbol NetBuilder::tail(Symbol x, const TailNumbers& t) {
  std::vector<std::int64_t> to = sizes(x);
  if (to.size() == 3) to = {to[0], to[1] / t.pool, to[2] / t.pool};
  const std::uint32_t scale = floats_blob(t.scale), shift = floats_blob(t.shift);
  return add(NetOp::tail, {x}, std::move(to), {static_cast<std::int64_t>(t.activation), t.pool, 0}, {t.slope, 1},
             {scale, shift, formats::no_blob});
}

Symbol NetBuilder::tail(Symbol x, const TailNumbers& t, Symbol added) {
  const Symbol y = tail(x, t);
  net_.nodes.back().inputs.push_back(added);
  set_read(added);
  return y;
}

Symbol NetBuilder::plane_means(Symbol x) { return add(NetOp::plane_means, {x}, {sizes(x)[0]}, {}, {}, {}); }

Symbol NetBuilder::strided_planes(Symbol x, std::int64_t stride, std::int64_t channels) {
  const std::vector<std::int64_t> from = sizes(x);
  if (from.size() != 3) return add(NetOp::strided_planes, {x}, from, {stride, channels}, {}, {});
  return add(NetOp::strided_planes, {x}, {channels, (from[1] + stride - 1) / stride, (from[2] + stride - 1) / stride},
             {stride, channels}, {}, {});
}

Symbol NetBuilder::softmax(Symbol x) { return add(NetOp::softmax, {x}, sizes(x), {}, {}, {}); }

std::vector<std::int64_t> NetBuilder::pool_sizes(Symbol x, const std::vector<std::int64_t>& ints) const {
  const NetNode node{static_cast<std::uint32_t>(NetOp::max_pool), {x}, x, ints, {}, {}};
  if (sizes(x).size() != 3 || ints[2] < 1 || ints[3] < 1) return sizes(x);  // which the check refuses
  const kernels::PoolShape shape = pool_shape(node, net_.values[x], 1);
  return {sizes(x)[0], shape.out_height(), shape.out_width()};
}

Symbol NetBuilder::max_pool(Symbol x, const PoolNumbers& p) {
  const std::vector<std::int64_t> ints = pool_ints(p);
  return add(NetOp::max_pool, {x}, pool_sizes(x, ints), ints, {}, {});
}

Symbol NetBuilder::average_pool(Symbol x, const PoolNumbers& p, bool counts_border) {
  std::vector<std::int64_t> ints = pool_ints(p);
  const std::vector<std::int64_t> to = pool_sizes(x, ints);
  ints.push_back(counts_border ? 1 : 0);
  return add(NetOp::average_pool, {x}, to, ints, {}, {});
}

Symbol NetBuilder::clip(Symbol x, float lo, float hi) { return add(NetOp::clip, {x}, sizes(x), {}, {lo, hi}, {}); }

Symbol NetBuilder::sigmoid(Symbol x) { return add(NetOp::sigmoid, {x}, sizes(x), {}, {}, {}); }

Symbol NetBuilder::multiply(Symbol x, Symbol by) { return add(NetOp::multiply, {x, by}, sizes(x), {}, {}, {}); }

Symbol NetBuilder::concat(const std::vector<Symbol>& parts) {
  std::vector<std::int64_t> to = sizes(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) to[0] += sizes(parts[i])[0];
  return add(NetOp::concat, parts, std::move(to), {}, {}, {});
}

Symbol NetBuilder::transpose(Symbol x, const std::array<std::int64_t, 3>& order) {
  const std::vector<std::int64_t>& from = sizes(x);
  std::vector<std::int64_t> to = from;
  for (std::size_t i = 0; i < 3 && from.size() == 3; ++i) to[i] = from[static_cast<std::size_t>(order[i]) % 3];
  return add(NetOp::transpose, {x}, std::move(to), {order.begin(), order.end()}, {}, {});
}

Symbol NetBuilder::reshape(Symbol x, std::vector<std::int64_t> to) {
  return add(NetOp::reshape, {x}, std::move(to), {}, {}, {});
}

Symbol NetBuilder::round_to_steps(Symbol x, float step, std::int64_t zero, std::int64_t lo, std::int64_t hi) {
  return add(NetOp::round_to_steps, {x}, sizes(x), {zero, lo, hi}, {step}, {});
}

Symbol NetBuilder::channel_prelu(Symbol x, const std::vector<float>& slopes) {
  const std::uint32_t blob = floats_blob(slopes);
  return add(NetOp::channel_prelu, {x}, sizes(x), {}, {}, {blob});
}

Symbol NetBuilder::border(Symbol x, const std::array<std::int64_t, 4>& n, float value) {
  std::vector<std::int64_t> to = sizes(x);
  if (to.size() == 3) to = {to[0], to[1] + n[0] + n[2], to[2] + n[1] + n[3]};
  return add(NetOp::border, {x}, std::move(to), {n.begin(), n.end()}, {value}, {});
}

Symbol NetBuilder::function(Symbol x, kernels::Function function, float a, float b) {
  return add(NetOp::function, {x}, sizes(x), {static_cast<std::int64_t>(function)}, {a, b}, {});
}

Symbol NetBuilder::layer_norm(Symbol x, float eps, const std::vector<float>& scale, const std::vector<float>& shift,
                              std::int64_t axis) {
  const std::uint32_t factors = floats_blob(scale), added = floats_blob(shift);
  std::vector<std::int64_t> ints;
  if (axis != 0) ints.push_back(axis);
  return add(NetOp::layer_norm, {x}, sizes(x), std::move(ints), {eps}, {factors, added});
}

Symbol NetBuilder::choose(Symbol x, kernels::Comparison comparison, float limit, Symbol yes, Symbol no) {
  return add(NetOp::choose, {x, yes, no}, sizes(x), {static_cast<std::int64_t>(comparison)}, {limit}, {});
}

Symbol NetBuilder::crop(Symbol x, const std::array<std::int64_t, 3>& first, std::vector<std::int64_t> to) {
  return add(NetOp::crop, {x}, std::move(to), {first.begin(), first.end()}, {}, {});
}

Symbol NetBuilder::flatten(Symbol x) {
  const Symbol flat = x < is_read_.size() && is_read_[x] ? tail(x, {}) : x;
  net_.values[flat].sizes = {elements_of(net_.values[x])};
  return flat;
}

NetFile NetBuilder::finish(const std::vector<Symbol>& outputs, bool folds) {
  net_.outputs = outputs;
  check_graph(net_);
  NetFile net = folds ? folded(net_) : net_;
  if (folds) check_graph(net);
  return net;
}

}  // namespace bie::runtime
