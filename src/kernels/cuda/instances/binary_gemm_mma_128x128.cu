#include "kernels/cuda/mma_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_mma<B1, MediumTile, MatrixRows>(const TileArgs<MatrixRows>&, const Queue&);

}  // namespace bie::kernels::cuda
