#include "runtime/net.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "bie/formats/error.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/registry.h"
#include "runtime/graph.h"

namespace bie::runtime {
namespace {

using formats::NetNode, formats::NetValue;

kernels::IsaSet isas() {
  const kernels::Host& host = kernels::host();
  if (host.status != kernels::Status::ok) throw std::runtime_error(kernels::describe(host.status));
  return host.isas;
}

template <class Table, class Shape>
const auto* best(const Table& table, const Shape& shape) {
  return &kernels::choose(table, shape, isas());
}

const char* element_name(formats::NetElement element) {
  constexpr const char* names[] = {"float32", "int8", "int32", "signs"};
  return names[static_cast<std::size_t>(element)];
}

}  // namespace

Memory memory_of(std::int64_t bytes) {
  const std::size_t whole = (static_cast<std::size_t>(std::max<std::int64_t>(1, bytes)) + 63) / 64 * 64;
  Memory memory(static_cast<char*>(std::aligned_alloc(64, whole)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

const char* Step::kernel_name() const {
  return gemm != nullptr           ? gemm->name
         : conv2d != nullptr       ? conv2d->name
         : float_gemm != nullptr   ? float_gemm->name
         : float_conv2d != nullptr ? float_conv2d->name
         : tail != nullptr         ? tail->name
         : threshold != nullptr    ? threshold->name
         : sigmoid != nullptr      ? sigmoid->name
                                   : "";
}

Net::Net(formats::NetFile file) : file_(std::move(file)) {
  check_graph(file_);
  plan_ = plan_of(file_, isas().has(kernels::Isa::avx512));
  steps_.reserve(file_.nodes.size());
  for (const NetNode& node : file_.nodes) steps_.push_back(step_of(node));
  summarise();
}

void Net::arrange(Step& step, std::size_t bytes) {
  step.panels = memory_of(static_cast<std::int64_t>(bytes));
  weight_bytes_ += static_cast<std::int64_t>(bytes);
}

Step Net::step_of(const NetNode& node) {
  Step step;
  const NetValue& x = file_.values[node.inputs[0]];
  const void* const weight = node.blobs.empty() ? nullptr : blob_of<void>(file_, node, 0);
  switch (op_of(node)) {
    case NetOp::linear: {
      const std::int64_t n = node.ints[1], k = elements_of(x);
      step.gemm = best(kernels::products_of(code_of(node.ints[0])).gemm, kernels::GemmShape{1, n, k});
      arrange(step, step.gemm->packed_bytes(n, k));
      step.gemm->prepack(weight, n, k, step.panels.get(), kernels::serial());
      break;
    }
    case NetOp::conv2d: {
      const kernels::Conv2dShape shape = conv_shape(node, x, 1);
      step.conv2d = best(kernels::products_of(code_of(node.ints[0])).conv2d, shape);
      arrange(step, step.conv2d->packed_bytes(shape));
      step.conv2d->prepack(weight, shape, step.panels.get(), kernels::serial());
      break;
    }
    case NetOp::float_linear: {
      const std::int64_t n = node.ints[0], k = elements_of(x);
      step.float_gemm = best(kernels::float_gemm_table(), kernels::GemmShape{1, n, k});
      arrange(step, step.float_gemm->packed_bytes(n, k));
      step.float_gemm->prepack(static_cast<const float*>(weight), n, k, reinterpret_cast<float*>(step.panels.get()));
      break;
    }
    case NetOp::float_conv2d: {
      const kernels::Conv2dShape shape = conv_shape(node, x, 1);
      step.float_conv2d = best(kernels::float_conv2d_table(), shape);
      if (!plan_.takes_tail[static_cast<std::size_t>(&node - file_.nodes.data())]) break;
      arrange(step, step.float_conv2d->packed_bytes(shape));
      step.float_conv2d->prepack(static_cast<const float*>(weight), shape, reinterpret_cast<float*>(step.panels.get()));
      break;
    }
    case NetOp::tail: step.tail = best(kernels::code_tail_table(), kernels::CodeTailShape{}); break;
    case NetOp::threshold: step.threshold = best(kernels::sign_threshold_table(), kernels::SignThresholdShape{}); break;
    case NetOp::sigmoid: step.sigmoid = best(kernels::sigmoid_table(), std::int64_t{0}); break;
    default: break;
  }
  return step;
}

void Net::summarise() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const NetNode& node = file_.nodes[i];
    const NetValue& y = file_.values[node.output];
    const std::int64_t bits = op_of(node) == NetOp::linear || op_of(node) == NetOp::conv2d ? node.ints[0] : 0;
    summary_ +=
        formats::joined(i, "  ", net_op_names[node.op], bits == 0 ? "" : formats::joined(" of ", bits, " bits"), "  %",
                        node.output, " = ", element_name(y.element), " ", formats::listed(y.sizes), " of");
    for (const std::uint32_t value : node.inputs) summary_ += formats::joined(" %", value);
    const char* const kernel = steps_[i].kernel_name();
    summary_ += *kernel == '\0' ? "\n" : formats::joined("  ", kernel, "\n");
  }
}

}  // namespace bie::runtime
