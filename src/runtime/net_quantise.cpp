#include "bie/runtime/net_quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "bie/formats/error.h"
#include "bie/kernels/packing.h"
#include "bie/kernels/step_search.h"
#include "bie/runtime/net_ops.h"
#include "runtime/graph.h"
#include "runtime/runner.h"

namespace bie::runtime {
namespace {

using formats::NetElement, formats::NetFile, formats::NetNode, formats::NetValue;

/// A product of floats that is to have codes.
struct Product {
  std::size_t node;
  int bits;
  std::vector<float> seen;  ///< values of its input on the samples
  float step = 1;
  std::vector<double> error;  ///< of each channel of the output, its sum on the samples
  NetNode codes, tail;        ///< that take its place
};

bool is_float_product(const NetNode& node) {
  return op_of(node) == NetOp::float_linear || op_of(node) == NetOp::float_conv2d;
}

std::vector<Product> products_of(const NetFile& net, const NetBits& bits) {
  std::vector<Product> products;
  for (std::size_t i = 0; i < net.nodes.size(); ++i)
    if (is_float_product(net.nodes[i])) products.push_back({i, bits.inner, {}, 1, {}, {}, {}});
  if (products.empty()) throw formats::Error("the net has no product of floats to quantise");
  products.front().bits = bits.first;
  products.back().bits = products.size() == 1 ? std::min(bits.first, bits.last) : bits.last;
  products.erase(std::remove_if(products.begin(), products.end(), [](const Product& p) { return p.bits == 32; }),
                 products.end());
  return products;
}

std::uint32_t floats_blob(NetFile& net, const std::vector<float>& numbers) {
  std::vector<std::uint8_t> bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return formats::add_blob(net, std::move(bytes));
}

/// Runs the net on each sample and hands over what its outputs hold.
void on_samples(const NetFile& file, const float* samples, std::int64_t count,
                const std::function<void(std::size_t output, const float* values, std::int64_t elements)>& take) {
  const auto net = std::make_shared<const Net>(file);
  Runner runner(net, 1, 1, nullptr);
  std::vector<std::vector<float>> values;
  std::vector<void*> places;
  places.reserve(file.outputs.size());
  for (const std::uint32_t output : file.outputs)
    values.emplace_back(static_cast<std::size_t>(elements_of(file.values[output])));
  for (std::vector<float>& value : values) places.push_back(value.data());
  const std::int64_t elements = elements_of(file.values[file.inputs[0]]);
  for (std::int64_t i = 0; i < count; ++i) {
    const void* const inputs[] = {samples + i * elements};
    const RunResult result = runner.run(1, inputs, places.data());
    if (result.status != kernels::Status::ok)
      throw formats::Error(formats::joined("sample ", i, " of the calibration: ", kernels::describe(result.status)));
    for (std::size_t output = 0; output < values.size(); ++output)
      take(output, values[output].data(), static_cast<std::int64_t>(values[output].size()));
  }
}

/// Collects inputs of the products: evenly spaced elements of each sample.
void observe(const NetFile& net, const float* samples, std::int64_t count, std::vector<Product>& products) {
  constexpr std::int64_t most_values = 1 << 18;
  NetFile watched = net;
  watched.outputs.clear();
  for (const Product& p : products) watched.outputs.push_back(net.nodes[p.node].inputs[0]);
  const std::int64_t wanted = std::max<std::int64_t>(1, most_values / count);
  on_samples(watched, samples, count, [&](std::size_t i, const float* values, std::int64_t elements) {
    const std::int64_t stride = (elements + wanted - 1) / wanted;
    for (std::int64_t j = 0; j < elements; j += stride) {
      if (!std::isfinite(values[j]))
        throw formats::Error(formats::joined("node ", products[i].node, " reads NaN or infinity on the samples"));
      products[i].seen.push_back(values[j]);
    }
  });
}

/// Codes of a weight [rows, depth] of floats, packed, and the step of each row.
struct WeightCodes {
  std::vector<std::uint8_t> bytes;
  std::vector<float> steps;
};
WeightCodes codes_of(const float* weight, std::int64_t rows, std::int64_t depth, int bits) {
  for (std::int64_t i = 0; i < rows * depth; ++i)
    if (!std::isfinite(weight[i])) throw formats::Error("a weight holds NaN or infinity");
  WeightCodes made{{}, std::vector<float>(static_cast<std::size_t>(rows))};
  kernels::least_square_steps({weight, rows, depth, bits}, made.steps.data());
  const float low = bits == 8 ? -128 : -8, high = bits == 8 ? 127 : 7;
  std::vector<std::int8_t> codes(static_cast<std::size_t>(rows * depth));
  for (std::int64_t i = 0; i < rows * depth; ++i) {
    const float q = std::nearbyint(weight[i] / made.steps[static_cast<std::size_t>(i / depth)]);
    codes[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(std::clamp(q, low, high));
  }
  made.bytes.resize(static_cast<std::size_t>(rows * kernels::row_bytes(code_of(bits), depth)));
  if (bits == 8)
    std::memcpy(made.bytes.data(), codes.data(), codes.size());
  else
    kernels::choose(kernels::int4_pack_table(), kernels::RowsShape{rows, depth}, kernels::host().isas)
        .run({rows, depth}, codes.data(), made.bytes.data(), kernels::serial());
  return made;
}

/// The nodes that take a product's place. Their values are added to the net behind all others.
void make_nodes(NetFile& net, Product& p) {
  const NetNode from = net.nodes[p.node];
  const NetValue &x = net.values[from.inputs[0]], y = net.values[from.output];
  const bool is_conv = op_of(from) == NetOp::float_conv2d;
  const std::int64_t rows = from.ints[0], depth = is_conv ? conv_shape(from, x, 1).depth() : elements_of(x);
  kernels::least_square_steps({p.seen.data(), 1, static_cast<std::int64_t>(p.seen.size()), p.bits}, &p.step);
  WeightCodes weight = codes_of(blob_of<float>(net, from, 0), rows, depth, p.bits);
  const std::uint32_t bytes = formats::add_blob(net, std::move(weight.bytes)), scale = floats_blob(net, weight.steps);
  net.values.push_back({NetElement::f32, y.sizes});
  const auto sums = static_cast<std::uint32_t>(net.values.size() - 1);
  std::vector<std::int64_t> ints = from.ints;
  ints.insert(ints.begin(), p.bits);
  if (is_conv) ints.push_back(0);
  p.codes = {static_cast<std::uint32_t>(is_conv ? NetOp::conv2d : NetOp::linear),
             from.inputs,
             sums,
             std::move(ints),
             {p.step, p.step},
             {bytes, formats::no_blob}};
  p.tail = {static_cast<std::uint32_t>(NetOp::tail),
            {sums},
            from.output,
            {static_cast<std::int64_t>(NetActivation::none), 1, 0},
            {1, 1},
            {scale, from.blobs[1], formats::no_blob}};
}

/// The mean of each channel's error, with the floats' inputs, off its shift.
void correct_means(NetFile& net, const float* samples, std::int64_t count, std::vector<Product>& products) {
  NetFile both = net;
  both.outputs.clear();
  both.nodes.clear();
  std::size_t next = 0;
  for (std::size_t i = 0; i < net.nodes.size(); ++i) {
    both.nodes.push_back(net.nodes[i]);
    if (next == products.size() || products[next].node != i) continue;
    Product& p = products[next++];
    const std::uint32_t floats = net.nodes[i].output;
    both.values.push_back(both.values[floats]);
    const auto codes = static_cast<std::uint32_t>(both.values.size() - 1);
    both.nodes.push_back(p.codes);
    both.nodes.push_back(p.tail);
    both.nodes.back().output = codes;
    both.outputs.insert(both.outputs.end(), {floats, codes});
    p.error.assign(static_cast<std::size_t>(net.nodes[i].ints[0]), 0.0);
  }
  std::vector<float> wanted;
  on_samples(both, samples, count, [&](std::size_t i, const float* values, std::int64_t elements) {
    if (i % 2 == 0) {
      wanted.assign(values, values + elements);
      return;
    }
    std::vector<double>& error = products[i / 2].error;
    const std::int64_t pixels = elements / static_cast<std::int64_t>(error.size());
    for (std::int64_t j = 0; j < elements; ++j)
      error[static_cast<std::size_t>(j / pixels)] +=
          (static_cast<double>(values[j]) - static_cast<double>(wanted[static_cast<std::size_t>(j)])) /
          static_cast<double>(pixels * count);
  });
  for (Product& p : products) {
    std::vector<float> shift(p.error.size(), 0.0f);
    if (const float* const bias = blob_of<float>(net, p.tail, 1); bias != nullptr)
      std::copy_n(bias, shift.size(), shift.begin());
    for (std::size_t c = 0; c < shift.size(); ++c) shift[c] -= static_cast<float>(p.error[c]);
    p.tail.blobs[1] = floats_blob(net, shift);
  }
}

}  // namespace

NetFile quantised(const NetFile& given, const float* samples, std::int64_t count, const NetBits& bits) {
  if (count < 1) throw formats::Error("there are no samples to calibrate with");
  if (given.inputs.size() != 1)
    throw formats::Error(
        formats::joined("calibration: expected a net with one input, got one with ", given.inputs.size()));
  NetFile net = given;
  std::vector<Product> products = products_of(net, bits);
  if (products.empty())
    throw formats::Error("the net has no products but the first and the last, which are to stay floats");
  observe(net, samples, count, products);
  for (Product& p : products) make_nodes(net, p);
  correct_means(net, samples, count, products);
  std::vector<NetNode> nodes;
  std::size_t next = 0;
  for (std::size_t i = 0; i < net.nodes.size(); ++i) {
    if (next < products.size() && products[next].node == i) {
      nodes.push_back(products[next].codes);
      nodes.push_back(products[next++].tail);
    } else {
      nodes.push_back(net.nodes[i]);
    }
  }
  net.nodes = std::move(nodes);
  check_graph(net);
  return net;
}

}  // namespace bie::runtime
