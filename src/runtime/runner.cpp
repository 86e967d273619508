#include "runtime/runner.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "bie/kernels/functions.h"
#include "bie/kernels/planes.h"
#include "runtime/graph.h"

namespace bie::runtime {
namespace {

using formats::NetElement, formats::NetFile, formats::NetNode, formats::NetValue;
using kernels::Dtype, kernels::Status;

/// Samples of one value, one behind the other.
char* sample(const void* first, std::int64_t index, const NetValue& value) {
  return const_cast<char*>(static_cast<const char*>(first)) + index * bytes_of(value);
}

/// Codes of `bits`.
int lowest(std::int64_t bits) { return bits == 4 ? -8 : -128; }
int highest(std::int64_t bits) { return bits == 4 ? 7 : 127; }

/// As many samples as fit into the second-level caches of the threads: what one node writes the next one reads.
std::int64_t samples_a_pass(const Net& net, std::int64_t most, int threads) {
  constexpr std::int64_t cache_bytes = 1 << 20;
  const std::int64_t bytes = std::max<std::int64_t>(1, plan_memory(net.plan(), net.file().outputs, 1).bytes);
  return std::clamp<std::int64_t>(threads * cache_bytes / bytes, 1, most);
}

/// Whether `count` samples of a value hold neither NaN nor infinity.
bool are_finite(const void* first, std::int64_t count, const NetValue& value) {
  return value.element != NetElement::f32 ||
         kernels::all_finite(static_cast<const float*>(first), count * elements_of(value));
}

}  // namespace

Runner::Runner(std::shared_ptr<const Net> net, std::int64_t max_batch, int threads, const kernels::Parallel* given)
    : net_(std::move(net)),
      pass_batch_(samples_a_pass(*net_, max_batch, threads)),
      plan_(plan_memory(net_->plan(), net_->file().outputs, pass_batch_)),
      memory_(memory_of(plan_.bytes)),
      places_(net_->plan().values.size()) {
  if (given == nullptr && threads > 1) pool_ = std::make_unique<kernels::ThreadPool>(threads);
  parallel_ = given != nullptr ? *given : pool_ != nullptr ? pool_->parallel() : kernels::serial();
  for (std::size_t value = 0; value < places_.size(); ++value)
    places_[value] = plan_.offsets[value] < 0 ? nullptr : memory_.get() + plan_.offsets[value];
}

RunResult Runner::run(std::int64_t batch, const void* const* inputs, void* const* outputs) {
  const NetFile& file = net_->file();
  for (std::int64_t first = 0; first < batch; first += pass_batch_) {
    const std::int64_t count = std::min(pass_batch_, batch - first);
    // A value that is an output twice is written to the last of its places and copied to the others.
    for (std::size_t i = 0; i < file.outputs.size(); ++i)
      places_[file.outputs[i]] = sample(outputs[i], first, file.values[file.outputs[i]]);
    for (std::size_t i = 0; i < file.inputs.size(); ++i)
      places_[file.inputs[i]] = sample(inputs[i], first, file.values[file.inputs[i]]);
    for (const std::uint32_t input : file.inputs)
      if (!are_finite(at(input), count, file.values[input])) return {Status::not_finite, RunResult::no_node};
    const RunResult result = pass(count);
    if (result.status != Status::ok) return result;
    for (std::size_t i = 0; i < file.outputs.size(); ++i) {
      const NetValue& value = file.values[file.outputs[i]];
      if (!are_finite(at(file.outputs[i]), count, value)) return {Status::not_finite, writer_of(file.outputs[i])};
      char* const to = sample(outputs[i], first, value);
      if (to != at(file.outputs[i]))
        std::memcpy(to, at(file.outputs[i]), static_cast<std::size_t>(count * bytes_of(value)));
    }
  }
  return {};
}

std::size_t Runner::writer_of(std::uint32_t value) const {
  const std::vector<NetNode>& nodes = net_->file().nodes;
  const auto writes = [&](const NetNode& node) { return node.output == value; };
  return static_cast<std::size_t>(std::find_if(nodes.begin(), nodes.end(), writes) - nodes.begin());
}

RunResult Runner::pass(std::int64_t batch) {
  for (const Work& work : net_->plan().works)
    if (const Status status = run_work(work, batch); status != Status::ok) return {status, work.node};
  return {};
}

Status Runner::run_work(const Work& work, std::int64_t batch) {
  const NetFile& file = net_->file();
  const NetNode& node = file.nodes[work.node];
  if (work.kind == Work::Kind::pooled) return run_pool(work, batch);
  if (work.kind == Work::Kind::silu)
    return net_->steps()[work.tail].sigmoid->silu(batch * elements_of(file.values[node.output]),
                                                  static_cast<const float*>(at(work.reads[0])),
                                                  static_cast<float*>(at(node.output)), parallel_);
  if (op_of(node) == NetOp::conv2d) return run_conv2d(work, batch);
  if (work.kind == Work::Kind::node) return run_node(work.node, batch);
  const Step& step = net_->steps()[work.node];
  return step.float_conv2d->run_tailed(
      conv_shape(node, file.values[node.inputs[0]], batch), static_cast<const float*>(at(node.inputs[0])),
      reinterpret_cast<const float*>(step.panels.get()), blob_of<float>(file, node, 1), tail_of(work), parallel_);
}

/// Runs the rest of a tail whose convolution's kernel did everything but the pool.
Status Runner::run_pool(const Work& work, std::int64_t batch) {
  const NetFile& file = net_->file();
  const NetNode& node = file.nodes[work.node];
  const NetValue& x = net_->plan().values[work.reads[0]];
  const void* const from = at(work.reads[0]);
  void* const to = at(node.output);
  if (x.element == NetElement::s8) {
    kernels::pool_codes({batch, x.sizes[0], x.sizes[1], x.sizes[2], node.ints[1]},
                        static_cast<const std::int8_t*>(from), static_cast<std::int8_t*>(to), parallel_);
    return Status::ok;
  }
  const std::int64_t bits = node.ints[2];
  return net_->steps()[work.node].tail->run(
      {batch, x.sizes[0], x.sizes[1], x.sizes[2], node.ints[1], true},
      {static_cast<const float*>(from), nullptr, nullptr, nullptr, 1.0f, false, to,
       dtype_of(file.values[node.output].element), blob_of<float>(file, node, 2), node.floats[1], lowest(bits),
       highest(bits), bits == 1},
      parallel_);
}

kernels::Conv2dTail Runner::tail_of(const Work& work) const {
  const NetFile& file = net_->file();
  const NetNode& tail = file.nodes[work.tail];
  const auto act = static_cast<NetActivation>(tail.ints[0]);
  const auto place = [this](std::uint32_t value) { return value == no_value ? nullptr : at(value); };
  return {blob_of<float>(file, tail, 0),
          blob_of<float>(file, tail, 1),
          tail.inputs.size() == 2 ? static_cast<const float*>(at(tail.inputs[1])) : nullptr,
          act == NetActivation::prelu ? tail.floats[0] : 1.0f,
          act == NetActivation::relu,
          static_cast<float*>(place(work.floats)),
          static_cast<std::int8_t*>(place(work.codes)),
          work.bias,
          work.step,
          lowest(work.bits),
          highest(work.bits),
          work.bits == 1};
}

/// A convolution, with its tail where the work has one.
Status Runner::run_conv2d(const Work& work, std::int64_t batch) {
  const NetFile& file = net_->file();
  const NetNode& node = file.nodes[work.node];
  const Step& step = net_->steps()[work.node];
  const std::uint32_t from = work.reads[0];
  const NetValue &in = net_->plan().values[from], &out = file.values[node.output];
  const kernels::Conv2dShape shape = conv_shape(node, file.values[node.inputs[0]], batch);
  const float* const own_bias = in.element == NetElement::s8 ? nullptr : blob_of<float>(file, node, 1);
  const kernels::Conv2dInput x{at(from), dtype_of(in.element), layout(from), own_bias, node.floats[0]};
  if (work.kind == Work::Kind::node)
    return step.conv2d->run(shape, x, step.panels.get(),
                            {at(node.output), dtype_of(out.element), layout(node.output), node.floats[1]}, parallel_);
  const kernels::Conv2dTail after = tail_of(work);
  return step.conv2d->run(shape, x, step.panels.get(),
                          {nullptr, Dtype::f32, kernels::ImageLayout::nhwc, node.floats[1], &after}, parallel_);
}

Status Runner::run_node(std::size_t i, std::int64_t batch) {
  const NetFile& file = net_->file();
  const NetNode& node = file.nodes[i];
  const Step& step = net_->steps()[i];
  const NetValue &in = file.values[node.inputs[0]], &out = file.values[node.output];
  const void* const x = at(node.inputs[0]);
  void* const y = at(node.output);
  const auto *const fx = static_cast<const float*>(x), *const panels = reinterpret_cast<float*>(step.panels.get());
  auto* const fy = static_cast<float*>(y);
  const auto floats = [&](std::size_t blob) { return blob_of<float>(file, node, blob); };
  switch (op_of(node)) {
    case NetOp::linear: {
      const std::int64_t k = elements_of(in), n = node.ints[1];
      const Dtype from = dtype_of(in.element), to = dtype_of(out.element);
      return step.gemm->run({batch, n, k}, {x, from, kernels::row_bytes(from, k), floats(1), node.floats[0]},
                            step.panels.get(), {y, to, kernels::row_bytes(to, n), node.floats[1]}, parallel_);
    }
    case NetOp::float_linear:
      return step.float_gemm->run({batch, node.ints[0], elements_of(in)}, fx, panels, floats(1), fy, parallel_);
    case NetOp::float_conv2d:
      return step.float_conv2d->run(conv_shape(node, in, batch), fx, floats(0), floats(1), fy, parallel_);
    case NetOp::tail: {
      const auto act = static_cast<NetActivation>(node.ints[0]);
      const std::int64_t bits = node.ints[2];
      return step.tail->run(
          {batch, channels_of(in), height_of(in), width_of(in), node.ints[1]},
          {fx, node.inputs.size() == 2 ? static_cast<const float*>(at(node.inputs[1])) : nullptr, floats(0), floats(1),
           act == NetActivation::prelu ? node.floats[0] : 1.0f, act == NetActivation::relu, y, dtype_of(out.element),
           floats(2), node.floats[1], lowest(bits), highest(bits), bits == 1},
          parallel_);
    }
    case NetOp::threshold:
      return step.threshold->run({batch, channels_of(in), height_of(in), width_of(in), node.ints[0]},
                                 {static_cast<const std::int32_t*>(x), blob_of<std::int32_t>(file, node, 0),
                                  blob_of<std::uint8_t>(file, node, 1), y, dtype_of(out.element)},
                                 parallel_);
    case NetOp::sigmoid: return step.sigmoid->sigmoid(batch * elements_of(in), fx, fy, parallel_);
    case NetOp::plane_means:
      if (last(node.inputs[0]))
        kernels::channel_means(fx, batch, height_of(in) * width_of(in), channels_of(in), fy, parallel_);
      else
        kernels::plane_means(fx, batch * channels_of(in), height_of(in) * width_of(in), fy, parallel_);
      return Status::ok;
    case NetOp::strided_planes:
      (last(node.output) ? kernels::strided_pixels : kernels::strided_planes)(
          {batch, in.sizes[0], in.sizes[1], in.sizes[2], node.ints[0], node.ints[1]}, fx, fy, parallel_);
      return Status::ok;
    default: return run_plain(node, batch);
  }
}

Status Runner::run_plain(const NetNode& node, std::int64_t batch) {
  const NetFile& file = net_->file();
  const NetValue &in = file.values[node.inputs[0]], &out = file.values[node.output];
  const auto* const x = static_cast<const float*>(at(node.inputs[0]));
  auto* const y = static_cast<float*>(at(node.output));
  const std::int64_t each = elements_of(in), all = batch * each, pixels = height_of(in) * width_of(in);
  const std::int64_t* const ints = node.ints.data();
  const float* const floats = node.floats.data();
  switch (op_of(node)) {
    case NetOp::softmax: kernels::softmax_rows(x, batch, each, y); break;
    case NetOp::max_pool:
      if (last(node.output))
        kernels::max_pool_pixels(pool_shape(node, in, batch), batch, channels_of(in), x, y, parallel_);
      else
        kernels::max_pool(pool_shape(node, in, batch), x, y, parallel_);
      break;
    case NetOp::average_pool: kernels::average_pool(pool_shape(node, in, batch), ints[8] != 0, x, y, parallel_); break;
    case NetOp::clip: kernels::clip(x, all, floats[0], floats[1], y, parallel_); break;
    case NetOp::multiply: {
      const bool whole = file.values[node.inputs[1]].sizes == in.sizes;
      kernels::multiply_planes(x, static_cast<const float*>(at(node.inputs[1])), whole ? all : batch * channels_of(in),
                               whole ? 1 : pixels, y, parallel_);
      break;
    }
    case NetOp::concat: {
      char* to = static_cast<char*>(at(node.output));
      for (std::int64_t i = 0; i < batch; ++i)
        for (const std::uint32_t input : node.inputs) {
          const NetValue& part = file.values[input];
          std::memcpy(to, sample(at(input), i, part), static_cast<std::size_t>(bytes_of(part)));
          to += bytes_of(part);
        }
      break;
    }
    case NetOp::transpose: kernels::transpose_planes(batch, in.sizes.data(), ints, x, y, parallel_); break;
    case NetOp::reshape: std::memcpy(y, x, static_cast<std::size_t>(batch * bytes_of(out))); break;
    case NetOp::round_to_steps:
      kernels::round_to_steps(x, all, floats[0], static_cast<int>(ints[0]), static_cast<int>(ints[1]),
                              static_cast<int>(ints[2]), y, parallel_);
      break;
    case NetOp::channel_prelu:
      kernels::prelu_planes(x, batch, channels_of(in), pixels, blob_of<float>(file, node, 0), y, parallel_);
      break;
    case NetOp::border:
      kernels::border_planes({batch * channels_of(in), in.sizes[1], in.sizes[2], ints[0], ints[1], ints[2], ints[3]},
                             floats[0], x, y, parallel_);
      break;
    case NetOp::function:
      kernels::apply_function(static_cast<kernels::Function>(ints[0]), floats[0], floats[1], x, all, y, parallel_);
      break;
    case NetOp::layer_norm:
      kernels::layer_norm(x, all / normed_of(node, in), normed_of(node, in), floats[0], blob_of<float>(file, node, 0),
                          blob_of<float>(file, node, 1), y, parallel_);
      break;
    case NetOp::choose:
      kernels::choose(static_cast<kernels::Comparison>(ints[0]), floats[0], x,
                      static_cast<const float*>(at(node.inputs[1])), static_cast<const float*>(at(node.inputs[2])), all,
                      y, parallel_);
      break;
    case NetOp::crop:
      kernels::crop_planes({batch, channels_of(in), height_of(in), width_of(in), ints[0], ints[1], ints[2],
                            channels_of(out), height_of(out), width_of(out)},
                           x, y, parallel_);
      break;
    default: return Status::bad_shape;
  }
  return Status::ok;
}

}  // namespace bie::runtime
