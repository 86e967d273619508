#include "kernels/cuda/wgmma_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_wgmma<S4, WgmmaWeightSmall, WindowRows>(const TileArgs<WindowRows>&, const Queue&);

}  // namespace bie::kernels::cuda
