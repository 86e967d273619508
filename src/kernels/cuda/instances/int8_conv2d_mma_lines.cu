#include "kernels/cuda/line_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_lines<S8>(LineArgs, int*, const Queue&);

}  // namespace bie::kernels::cuda
