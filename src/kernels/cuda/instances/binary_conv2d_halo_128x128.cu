#include "kernels/cuda/halo_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_halo<B1, HaloWideTile>(HaloArgs, int*, const Queue&);

}  // namespace bie::kernels::cuda
