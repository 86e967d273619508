#include "kernels/cuda/weight_only_float_tile.cuh"

namespace bie::kernels::cuda::weight_only {

template Status run_width<2>(const Args&, bool, const Gpu&, const Queue&);

}  // namespace bie::kernels::cuda::weight_only
