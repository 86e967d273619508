// Refusals that come before any operator's code runs: torch.func transforms, and CUDA in builds without its kernels.
#include <torch/library.h>

#include "ops/registration.h"

namespace {

/// torch.func.vmap of a layer's operator: its fallback would loop over the batch, and lose gradients.
void refuse_transforms(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(), ": transforms of torch.func (grad, vmap, jvp, ...) are refused");
}

void refuse_cuda(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(), ": this build of bie has no CUDA kernels; build it with -DBIE_CUDA=ON");
}

}  // namespace

bie::ops::Operators::Operators(torch::Library& library, bool of_cuda)
    : library_(library), refuses_(of_cuda && !BIE_WITH_CUDA) {}

torch::CppFunction bie::ops::Operators::refusal() { return torch::CppFunction::makeFromBoxedFunction<&refuse_cuda>(); }

TORCH_LIBRARY_IMPL(bie, FuncTorchBatched, m) {
  for (const char* name : {"binary_linear", "q8_linear", "q4_linear", "binary_conv2d", "q8_conv2d", "q4_conv2d",
                           "binary_matmul", "q8_matmul", "q4_matmul", "block_tail", "training_tail",
                           "weight_only_linear", "binary_embedding", "binary_embedding_bag", "weight_only_embedding"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_transforms>());
}
