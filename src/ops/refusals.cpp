// What is refused before any operator is reached.
#include <torch/library.h>

namespace {

/// torch.func.vmap of a layer's operator: its fallback would loop over the batch, and lose gradients.
void refuse_transforms(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(), ": transforms of torch.func (grad, vmap, jvp, ...) are refused");
}

#if !BIE_WITH_CUDA
void refuse_cuda(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(), ": this build of bie has no CUDA kernels; build it with -DBIE_CUDA=ON");
}
#endif

}  // namespace

TORCH_LIBRARY_IMPL(bie, FuncTorchBatched, m) {
  for (const char* name : {"binary_linear", "q8_linear", "q4_linear", "binary_conv2d", "q8_conv2d", "q4_conv2d",
                           "binary_matmul", "q8_matmul", "q4_matmul", "block_tail"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_transforms>());
}

#if !BIE_WITH_CUDA
TORCH_LIBRARY_IMPL(bie, CUDA, m) {
  for (const char* name : {"binary_linear",
                           "q8_linear",
                           "q4_linear",
                           "binary_conv2d",
                           "q8_conv2d",
                           "q4_conv2d",
                           "binary_matmul",
                           "q8_matmul",
                           "q4_matmul",
                           "binary_linear_backward",
                           "q8_linear_backward",
                           "q4_linear_backward",
                           "binary_conv2d_backward",
                           "q8_conv2d_backward",
                           "q4_conv2d_backward",
                           "binary_matmul_backward",
                           "q8_matmul_backward",
                           "q4_matmul_backward",
                           "binary_prepack",
                           "q8_prepack",
                           "q4_prepack",
                           "binary_conv2d_prepack",
                           "q8_conv2d_prepack",
                           "q4_conv2d_prepack",
                           "pack_signs",
                           "unpack_signs",
                           "pack_int4",
                           "unpack_int4",
                           "signs_from_layout",
                           "signs_to_layout",
                           "q8_quantize",
                           "q4_quantize",
                           "amax_quantize",
                           "int8_grad",
                           "binary_init",
                           "init_scale_",
                           "block_tail",
                           "diode_mix_float_",
                           "diode_mix_codes_",
                           "diode_mix_signs_",
                           "diode_mix_float_many_",
                           "diode_mix_codes_many_",
                           "diode_mix_signs_many_",
                           "diode_mix_first_moment"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_cuda>());
}
#endif
