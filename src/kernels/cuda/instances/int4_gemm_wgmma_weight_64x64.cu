#include "kernels/cuda/wgmma_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_wgmma<S4, WgmmaWeightSmall, MatrixRows>(const TileArgs<MatrixRows>&, const Queue&);

}  // namespace bie::kernels::cuda
