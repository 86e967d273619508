#include "kernels/cuda/mixed_tile.cuh"

namespace bie::kernels::cuda::mixed {

Status launch_f16(const Choice& choice, const Args& args, std::int64_t blocks, const Queue& queue) {
  return launch_choice<__half, 1>(choice, args, blocks, queue);
}

}  // namespace bie::kernels::cuda::mixed
