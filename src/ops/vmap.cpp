// torch.func.vmap of a layer's operator is refused: its fallback would loop over the batch, and lose gradients.
#include <torch/library.h>

namespace {

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(), ": transforms of torch.func (grad, vmap, jvp, ...) are refused");
}

}  // namespace

TORCH_LIBRARY_IMPL(bie, FuncTorchBatched, m) {
  for (const char* name : {"binary_linear", "q8_linear", "q4_linear", "q8_conv2d", "q4_conv2d"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
}
