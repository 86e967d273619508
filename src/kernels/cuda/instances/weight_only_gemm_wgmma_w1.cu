#include "kernels/cuda/weight_only_wide.cuh"

namespace bie::kernels::cuda::weight_only {

template Status run_wide<1>(WideArgs&, bool, const Queue&);

}  // namespace bie::kernels::cuda::weight_only
