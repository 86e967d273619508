#include "kernels/cuda/mixed_tile.cuh"

namespace bie::kernels::cuda::mixed {

Status launch_bf16(const Choice& choice, const Args& args, std::int64_t blocks, const Queue& queue) {
  return launch_choice<__nv_bfloat16, 1>(choice, args, blocks, queue);
}

}  // namespace bie::kernels::cuda::mixed
