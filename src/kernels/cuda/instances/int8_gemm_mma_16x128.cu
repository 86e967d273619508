#include "kernels/cuda/mma_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_mma<S8, ThinTile, MatrixRows>(const TileArgs<MatrixRows>&, const Queue&);

}  // namespace bie::kernels::cuda
