#include "kernels/cuda/mma_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_mma<B1, MediumTile, WindowRows>(const TileArgs<WindowRows>&, const Queue&);

}  // namespace bie::kernels::cuda
