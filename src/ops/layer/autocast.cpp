// Under torch.autocast the operators of layers take activations in autocast's dtype, as torch's own products do.
#include <ATen/autocast_mode.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace bie::ops {
namespace {

/// Casts the first `count` arguments and calls the operator below autocast. Codes stay codes.
template <std::size_t count>
void cast(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autocast_dispatch_keyset);
  const std::size_t arguments = op.schema().arguments().size();
  for (std::size_t i = 0; i < count; ++i) {
    c10::IValue& argument = torch::jit::peek(*stack, i, arguments);
    const at::Tensor x = argument.toTensor();
    const c10::DeviceType device = x.device().type();
    argument = at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device);
  }
  op.callBoxed(stack);
}

void register_casts(torch::Library& m) {
  for (const char* name : {"binary_linear", "q8_linear", "q4_linear", "binary_conv2d", "q8_conv2d", "q4_conv2d"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast<1>>());
  for (const char* name : {"binary_matmul", "q8_matmul", "q4_matmul"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast<2>>());
}

}  // namespace
}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, AutocastCPU, m) { bie::ops::register_casts(m); }

TORCH_LIBRARY_IMPL(bie, AutocastCUDA, m) { bie::ops::register_casts(m); }
