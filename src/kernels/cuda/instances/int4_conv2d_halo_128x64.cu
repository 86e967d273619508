#include "kernels/cuda/halo_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_halo<S4, HaloTile>(HaloArgs, int*, const Queue&);

}  // namespace bie::kernels::cuda
