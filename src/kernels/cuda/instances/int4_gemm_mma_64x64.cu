#include "kernels/cuda/mma_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_mma<S4, SmallTile, MatrixRows>(const TileArgs<MatrixRows>&, const Queue&);

}  // namespace bie::kernels::cuda
