#include "kernels/cuda/weight_only_int8_tile.cuh"

namespace bie::kernels::cuda::weight_only {

template Status run_int8_tile<4>(const Int8Args&, const Gpu&, const Queue&);

}  // namespace bie::kernels::cuda::weight_only
