#include "kernels/cuda/wgmma_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_wgmma<S8, WgmmaTall, WindowRows>(const TileArgs<WindowRows>&, const Queue&);

}  // namespace bie::kernels::cuda
