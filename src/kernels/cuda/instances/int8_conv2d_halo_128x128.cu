#include "kernels/cuda/halo_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_halo<S8, HaloWideTile>(HaloArgs, int*, const Queue&);

}  // namespace bie::kernels::cuda
