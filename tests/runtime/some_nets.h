// Nets of every kind of node with random weights, for the tests of the runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/kernels/dtype.h"
#include "bie/runtime/net.h"
#include "bie/runtime/net_builder.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::runtime::test {

using kernels::test::ReplayableRng;

inline std::vector<float> floats(std::int64_t count, ReplayableRng& rng, float size = 1) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(rng.between(-(1 << 16), 1 << 16)) * 0x1p-16f * size;
  return values;
}

/// A weight of `rows` rows of `depth` codes, and a bias of the activation of `features`.
inline CodedWeight weight(int bits, std::int64_t rows, std::int64_t depth, std::int64_t features, ReplayableRng& rng) {
  const auto dtype = bits == 1 ? kernels::Dtype::bits : bits == 4 ? kernels::Dtype::s4 : kernels::Dtype::s8;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows * kernels::row_bytes(dtype, depth)));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(rng.between(0, 255));
  return {bits,
          bits == 1   ? 1.0f
          : bits == 4 ? 0.11f
                      : 0.01f,
          bits == 1   ? 0.3f
          : bits == 4 ? 0.01f
                      : 1e-4f,
          std::move(bytes), floats(features, rng, 0.1f)};
}

inline TailNumbers norm(std::int64_t channels, NetActivation act, std::int64_t pool, ReplayableRng& rng) {
  return {floats(channels, rng, 0.2f), floats(channels, rng, 0.5f), act, 0.25f, pool};
}

/// A float convolution, `bits` convolutions with a shortcut and a pool, the mean, linears of each kind, softmax.
struct TwoNets {
  formats::NetFile folded, plain;
};
inline TwoNets conv_nets(int bits, ReplayableRng& rng) {
  NetBuilder net;
  const int pad_code = bits == 1 ? -1 : 0;
  const WindowNumbers same{.out_channels = 9, .kernel = {3, 3}, .padding = {1, 1}};
  WindowNumbers half = same;
  half.out_channels = 12;
  half.stride = {2, 2};
  half.groups = 3;
  Symbol x = net.input({3, 12, 11});
  x = net.float_conv2d(x, same, floats(9 * 27, rng), floats(9, rng));
  x = net.tail(x, norm(9, NetActivation::relu, 1, rng));
  Symbol y = net.conv2d(x, same, weight(bits, 9, 81, 9, rng), pad_code);
  x = net.tail(y, norm(9, NetActivation::prelu, 1, rng), x);
  y = net.tail(net.conv2d(x, half, weight(bits, 12, 27, 9, rng), pad_code), norm(12, NetActivation::none, 1, rng));
  y = net.tail(y, norm(12, NetActivation::prelu, 2, rng), net.strided_planes(x, 2, 12));
  WindowNumbers last = same;
  last.out_channels = 7;
  y = net.tail(net.conv2d(y, last, weight(bits, 7, 108, 12, rng), pad_code), norm(7, NetActivation::relu, 1, rng));
  y = net.tail(net.conv2d(y, same, weight(bits, 9, 63, 7, rng), pad_code), norm(9, NetActivation::prelu, 1, rng));
  y = net.plane_means(y);
  y = net.tail(net.linear(y, 33, weight(bits, 33, 9, 9, rng)), norm(33, NetActivation::prelu, 1, rng));
  y = net.tail(net.linear(y, 17, weight(bits, 17, 33, 33, rng)), norm(17, NetActivation::relu, 1, rng));
  y = net.float_linear(y, 5, floats(5 * 17, rng), floats(5, rng));
  net.set_metadata("bits", std::to_string(bits));
  const std::vector<Symbol> outputs = {y, net.softmax(y)};
  return {net.finish(outputs), net.finish(outputs, /*folds=*/false)};
}
/// Convolutions of codes whose values others read too: a stem with pools, shortcuts with a convolution of their own,
/// values that are read as floats and codes, by quantisers that are alike and not.
inline formats::NetFile code_net(int bits, ReplayableRng& rng) {
  NetBuilder net;
  const WindowNumbers same{.out_channels = 16, .kernel = {3, 3}, .padding = {1, 1}};
  WindowNumbers half = same, past = same;
  half.out_channels = past.out_channels = 34;
  half.stride = past.stride = {2, 2};
  past.kernel = {1, 1};
  past.padding = {0, 0};
  Symbol x = net.input({3, 26, 23});
  Symbol y =
      net.tail(net.float_conv2d(x, same, floats(16 * 27, rng), floats(16, rng)), norm(16, NetActivation::relu, 2, rng));
  y = net.tail(net.conv2d(y, same, weight(bits, 16, 144, 16, rng), 0), norm(16, NetActivation::relu, 1, rng));
  y = net.max_pool(y, {{3, 3}, {1, 1}, {1, 1, 1, 1}});
  const CodedWeight first = weight(bits, 16, 144, 16, rng);
  x = net.tail(net.conv2d(y, same, first, 0), norm(16, NetActivation::prelu, 1, rng), y);
  CodedWeight second = weight(bits, 34, 144, 16, rng), third = weight(bits, 34, 16, 16, rng);
  third.bias = second.bias;
  const Symbol shortcut = net.tail(net.conv2d(x, past, third, 0), norm(34, NetActivation::none, 1, rng));
  y = net.tail(net.conv2d(x, half, second, 0), norm(34, NetActivation::relu, 1, rng));
  WindowNumbers inner = same;
  inner.out_channels = 34;
  y = net.tail(net.conv2d(y, inner, weight(bits, 34, 34 * 9, 34, rng), 0), norm(34, NetActivation::prelu, 1, rng),
               shortcut);
  const Symbol a =
      net.tail(net.conv2d(y, inner, weight(bits, 34, 34 * 9, 34, rng), 0), norm(34, NetActivation::relu, 1, rng));
  const Symbol b =
      net.tail(net.conv2d(y, inner, weight(bits, 34, 34 * 9, 34, rng), 0), norm(34, NetActivation::relu, 2, rng));
  const Symbol c =
      net.tail(net.conv2d(b, inner, weight(bits, 34, 34 * 9, 34, rng), 0), norm(34, NetActivation::relu, 1, rng));
  const Symbol means = net.concat({net.plane_means(a), net.plane_means(c)});
  return net.finish({net.float_linear(means, 5, floats(5 * 68, rng), floats(5, rng))});
}
/// Convolutions with so many outputs that each computes its tail: one of floats before a pool and one of codes.
inline formats::NetFile wide_net(int bits, ReplayableRng& rng) {
  NetBuilder net;
  const WindowNumbers first{.out_channels = 36, .kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}};
  WindowNumbers inner = first;
  inner.stride = {1, 1};
  Symbol x = net.input({3, 12, 11});
  x = net.tail(net.float_conv2d(x, first, floats(36 * 27, rng), floats(36, rng)),
               norm(36, NetActivation::relu, 1, rng));
  x = net.max_pool(x, {{3, 3}, {1, 1}, {1, 1, 1, 1}});
  const Symbol y =
      net.tail(net.conv2d(x, inner, weight(bits, 36, 36 * 9, 36, rng), 0), norm(36, NetActivation::prelu, 1, rng));
  x = net.tail(net.conv2d(y, inner, weight(bits, 36, 36 * 9, 36, rng), 0), norm(36, NetActivation::relu, 1, rng), x);
  return net.finish({net.plane_means(x)});
}
/// The same net with the floats of its convolutions and its sigmoids as outputs too, so that nodes run one by one.
inline formats::NetFile node_by_node(formats::NetFile net) {
  for (const formats::NetNode& node : net.nodes)
    if (op_of(node) == NetOp::conv2d || op_of(node) == NetOp::float_conv2d || op_of(node) == NetOp::sigmoid)
      if (net.values[node.output].element == formats::NetElement::f32) net.outputs.push_back(node.output);
  return net;
}

/// Every node that is one plain loop of floats.
inline formats::NetFile plain_net(ReplayableRng& rng) {
  NetBuilder net;
  const Symbol x = net.input({3, 12, 11});
  const Symbol largest = net.max_pool(x, {{3, 2}, {2, 3}, {1, 0, 2, 1}});
  const Symbol means = net.average_pool(x, {{3, 2}, {2, 3}, {1, 0, 2, 1}}, true);
  const Symbol inside = net.average_pool(x, {{3, 2}, {2, 3}, {1, 0, 2, 1}}, false);
  const Symbol all = net.concat({net.clip(largest, -0.5f, 0.75f), means, net.multiply(means, inside)});
  const Symbol gated = net.multiply(net.channel_prelu(all, floats(9, rng)), net.sigmoid(net.plane_means(all)));
  Symbol y = net.border(net.round_to_steps(gated, 0.03f, 5, -128, 127), {1, 0, 2, 3}, 0.25f);
  for (int function = 0; function < static_cast<int>(kernels::last_function); ++function)
    y = net.function(y, static_cast<kernels::Function>(function), 0.5f, 0.25f);
  y = net.choose(y, kernels::Comparison::less, 0.5f, net.layer_norm(y, 1e-5f, {}, floats(net.sizes(y)[2], rng), 2), y);
  y = net.crop(y, {1, 0, 2}, {net.sizes(y)[0] - 2, net.sizes(y)[1] - 1, net.sizes(y)[2] - 2});
  y = net.transpose(y, {1, 2, 0});
  const std::vector<std::int64_t> sizes = net.sizes(y);
  y = net.reshape(y, {sizes[0] * sizes[1] * sizes[2]});
  y = net.layer_norm(y, 1e-5f, floats(net.sizes(y)[0], rng), {});
  return net.finish({net.float_linear(y, 5, floats(5 * net.sizes(y)[0], rng), {}), net.softmax(y)});
}
inline formats::NetFile conv_net(int bits, ReplayableRng& rng) { return conv_nets(bits, rng).folded; }

inline std::vector<std::vector<float>> run(const SharedNet& net, const std::vector<float>& input, std::int64_t batch,
                                           const bie_options& options) {
  bie_context* context = nullptr;
  check(bie_context_create(net.get(), &options, &context));
  const std::unique_ptr<bie_context, void (*)(bie_context*)> owner(context, bie_context_free);
  std::vector<std::vector<float>> outputs;
  std::vector<void*> places;
  for (int i = 0; i < bie_net_outputs(net.get()); ++i)
    outputs.emplace_back(static_cast<std::size_t>(batch * net.output(i).elements));
  for (auto& output : outputs) places.push_back(output.data());
  const void* const inputs[] = {input.data()};
  check(bie_run(context, batch, inputs, places.data()));
  return outputs;
}

}  // namespace bie::runtime::test
