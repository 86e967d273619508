#include "kernels/cuda/weight_only_int8_wide.cuh"

namespace bie::kernels::cuda::weight_only {

template Status run_int8_wide<1>(Int8WideArgs&, const Gpu&, const Queue&);

}  // namespace bie::kernels::cuda::weight_only
