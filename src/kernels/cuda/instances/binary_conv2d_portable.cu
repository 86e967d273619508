#include "kernels/cuda/portable_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_portable<B1, WindowRows>(const TileArgs<WindowRows>&, const Queue&);

}  // namespace bie::kernels::cuda
