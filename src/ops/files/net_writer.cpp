// The graphs of exported nets for Python: net_bytes.
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "bie/kernels/code_tail.h"
#include "bie/runtime/net_builder.h"
#include "ops/dispatcher.h"
#include "ops/files/file_tensors.h"

namespace bie::ops {
namespace {

using runtime::NetActivation, runtime::NetBuilder, runtime::Symbol;

/// Arguments of one node.
struct Given {
  std::string op;
  std::vector<Symbol> inputs;
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::vector<OptTensor> blobs;

  void wants(std::size_t in, std::size_t whole, std::size_t real, std::size_t tensors) const {
    TORCH_CHECK_VALUE(inputs.size() == in && ints.size() == whole && floats.size() == real && blobs.size() == tensors,
                      "net_bytes: ", op, " has ", inputs.size(), " inputs, ", ints.size(), " integers, ", floats.size(),
                      " floats and ", blobs.size(), " tensors");
  }
  std::vector<float> numbers(std::size_t i) const {
    if (!blobs[i].has_value()) return {};
    const at::Tensor dense = blobs[i]->detach().cpu().to(at::kFloat).contiguous();
    const float* const data = dense.const_data_ptr<float>();
    return {data, data + dense.numel()};
  }
  runtime::CodedWeight coded(int bits) const {
    TORCH_CHECK_VALUE(
        blobs[0].has_value() && (blobs[0]->scalar_type() == at::kByte || blobs[0]->scalar_type() == at::kChar),
        "net_bytes: ", op, " wants a packed weight");
    const at::Tensor dense = blobs[0]->detach().cpu().contiguous();
    const auto* const data = static_cast<const std::uint8_t*>(dense.const_data_ptr());
    return {bits, floats[0], floats[1], {data, data + dense.nbytes()}, numbers(1)};
  }
  /// Reads ints[first] and those behind it: channels, kernel, stride, padding, dilation, groups.
  runtime::WindowNumbers window(std::size_t first) const {
    const std::int64_t* const n = ints.data() + first;
    return {n[0], {n[1], n[2]}, {n[3], n[4]}, {n[5], n[6]}, {n[7], n[8]}, n[9]};
  }
};

Symbol batch_norm(NetBuilder& net, const Given& g) {
  const std::vector<float> mean = g.numbers(0), var = g.numbers(1), weight = g.numbers(2), bias = g.numbers(3);
  TORCH_CHECK_VALUE(var.size() == mean.size() && (weight.empty() || weight.size() == mean.size()) &&
                        (bias.empty() || bias.size() == mean.size()),
                    "net_bytes: the numbers of a batch_norm are not of one size");
  runtime::TailNumbers tail;
  tail.scale.resize(mean.size());
  tail.shift.resize(mean.size());
  kernels::norm_numbers(static_cast<std::int64_t>(mean.size()), mean.data(), var.data(),
                        weight.empty() ? nullptr : weight.data(), bias.empty() ? nullptr : bias.data(), g.floats[0],
                        tail.scale.data(), tail.shift.data());
  return net.tail(g.inputs[0], tail);
}

Symbol added(NetBuilder& net, const Given& g) {
  const auto x = [&](std::size_t i) { return g.inputs[i]; };
  runtime::TailNumbers tail;
  if (g.op == "linear") {
    g.wants(1, 2, 2, 2);
    return net.linear(x(0), g.ints[1], g.coded(static_cast<int>(g.ints[0])));
  }
  if (g.op == "conv2d") {
    g.wants(1, 12, 2, 2);
    return net.conv2d(x(0), g.window(1), g.coded(static_cast<int>(g.ints[0])), static_cast<int>(g.ints[11]));
  }
  if (g.op == "float_linear") {
    g.wants(1, 1, 0, 2);
    return net.float_linear(x(0), g.ints[0], g.numbers(0), g.numbers(1));
  }
  if (g.op == "float_conv2d") {
    g.wants(1, 10, 0, 2);
    return net.float_conv2d(x(0), g.window(0), g.numbers(0), g.numbers(1));
  }
  if (g.op == "batch_norm") {
    g.wants(1, 0, 1, 4);
    return batch_norm(net, g);
  }
  if (g.op == "affine") {
    g.wants(1, 0, 0, 2);
    tail.scale = g.numbers(0);
    tail.shift = g.numbers(1);
    return net.tail(x(0), tail);
  }
  if (g.op == "activation") {
    g.wants(1, 1, 1, 0);
    tail.activation = static_cast<NetActivation>(g.ints[0]);
    tail.slope = g.floats[0];
    return net.tail(x(0), tail);
  }
  if (g.op == "pool") {
    g.wants(1, 1, 0, 0);
    tail.pool = g.ints[0];
    TORCH_CHECK_VALUE(tail.pool >= 1, "net_bytes: a pool of ", tail.pool);
    return net.tail(x(0), tail);
  }
  if (g.op == "max_pool") {
    g.wants(1, 6, 0, 0);
    const std::int64_t* const n = g.ints.data();
    return net.max_pool(x(0), {{n[0], n[1]}, {n[2], n[3]}, {n[4], n[5], n[4], n[5]}});
  }
  if (g.op == "add") {
    g.wants(2, 0, 0, 0);
    return net.tail(x(0), tail, x(1));
  }
  g.wants(1, 0, 0, 0);
  if (g.op == "plane_means") return net.plane_means(x(0));
  if (g.op == "softmax") return net.softmax(x(0));
  if (g.op == "flatten") return net.flatten(x(0));
  TORCH_CHECK_VALUE(false, "net_bytes: there is no node ", g.op);
}

at::Tensor net_bytes(const c10::List<std::string>& ops, at::IntArrayRef inputs, at::IntArrayRef ints,
                     at::ArrayRef<double> floats, const c10::List<OptTensor>& blobs, at::IntArrayRef counts,
                     at::IntArrayRef input_sizes, at::IntArrayRef outputs, const c10::List<std::string>& keys,
                     const c10::List<std::string>& texts) {
  TORCH_CHECK_VALUE(counts.size() == 4 * ops.size() && keys.size() == texts.size() &&
                        (input_sizes.size() == 1 || input_sizes.size() == 3),
                    "net_bytes: the lists are not of one net");
  return with_file_errors([&] {
    NetBuilder net;
    std::vector<Symbol> symbols = {net.input(input_sizes.vec())};
    const auto symbol = [&](std::int64_t number) {
      TORCH_CHECK_VALUE(number >= 0 && number < static_cast<std::int64_t>(symbols.size()),
                        "net_bytes: there is no value ", number);
      return symbols[static_cast<std::size_t>(number)];
    };
    std::size_t at[4] = {};
    for (std::size_t i = 0; i < ops.size(); ++i) {
      Given given{ops.get(i), {}, {}, {}, {}};
      const std::size_t sizes[4] = {inputs.size(), ints.size(), floats.size(), blobs.size()};
      for (std::size_t list = 0; list < 4; ++list) {
        const std::int64_t count = counts[4 * i + list];
        TORCH_CHECK_VALUE(count >= 0 && static_cast<std::size_t>(count) <= sizes[list] - at[list],
                          "net_bytes: the lists end before node ", i);
        for (std::int64_t j = 0; j < count; ++j, ++at[list]) {
          if (list == 0) given.inputs.push_back(symbol(inputs[at[0]]));
          if (list == 1) given.ints.push_back(ints[at[1]]);
          if (list == 2) given.floats.push_back(static_cast<float>(floats[at[2]]));
          if (list == 3) given.blobs.push_back(blobs.get(at[3]));
        }
      }
      symbols.push_back(added(net, given));
    }
    for (std::size_t i = 0; i < keys.size(); ++i) net.set_metadata(keys.get(i), texts.get(i));
    std::vector<Symbol> ends;
    for (const std::int64_t output : outputs) ends.push_back(symbol(output));
    std::vector<std::uint8_t> bytes = formats::net_bytes(net.finish(ends));
    const auto size = static_cast<std::int64_t>(bytes.size());
    return tensor_of(std::move(bytes), at::kByte, {size});
  });
}

}  // namespace
}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CompositeExplicitAutograd, m) { m.impl("net_bytes", bie::ops::net_bytes); }
