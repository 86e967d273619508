#include "kernels/cuda/halo_pipeline.cuh"

namespace bie::kernels::cuda {

template Status launch_halo_pipeline<S4, PipelineTall>(HaloArgs, int*, const Queue&);

}  // namespace bie::kernels::cuda
