#include "kernels/cuda/pixel_tile.cuh"

namespace bie::kernels::cuda {

template Status launch_pixels<B1, PixelTile<256>>(PixelArgs, int*, const Queue&);

}  // namespace bie::kernels::cuda
