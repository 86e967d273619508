#include "kernels/cuda/portable_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_portable<S4, MatrixRows>(const TileArgs<MatrixRows>&, const Queue&);

}  // namespace bie::kernels::cuda
