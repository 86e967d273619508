#include "kernels/cuda/wgmma_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_wgmma<B1, WgmmaWeightThin, MatrixRows>(const TileArgs<MatrixRows>&, const Queue&);

}  // namespace bie::kernels::cuda
