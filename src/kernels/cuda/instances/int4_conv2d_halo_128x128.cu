#include "kernels/cuda/halo_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_halo<S4, HaloWideTile>(HaloArgs, int*, const Queue&);

}  // namespace bie::kernels::cuda
