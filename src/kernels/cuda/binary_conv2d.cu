// The kernels of b1xb1_conv2d on CUDA, best first.
#include "bie/kernels/binary_conv2d.h"

#include "kernels/cuda/halo_kernels.cuh"
#include "kernels/cuda/line_kernels.cuh"
#include "kernels/cuda/pixel_kernels.cuh"

namespace bie::kernels::cuda {

Conv2dTable b1xb1_conv2d_table() {
  static const Conv2dKernel best_first[] = {
      {"b1xb1_conv2d_mma_and_lines", 80, 90, has_lines<B1>, suits_lines<B1>, run_lines<B1, max_k_b1>, takes_lines},
      {"b1xb1_conv2d_wgmma_pixels_256", 90, 90, has_pixels<B1, PixelTile<256>>, suits_pixels<B1, PixelTile<256>>,
       run_pixels<B1, PixelTile<256>, max_k_b1>, takes_halves},
      {"b1xb1_conv2d_wgmma_pixels_128", 90, 90, has_pixels<B1, PixelTile<128>>, suits_pixels<B1, PixelTile<128>>,
       run_pixels<B1, PixelTile<128>, max_k_b1>, takes_halves},
      {"b1xb1_conv2d_wgmma_pixels_64", 90, 90, has_pixels<B1, PixelTile<64>>, suits_pixels<B1, PixelTile<64>>,
       run_pixels<B1, PixelTile<64>, max_k_b1>, takes_halves},
      {"b1xb1_conv2d_halo_128x128", 80, 90, has_halo<B1, HaloWideTile>, suits_halo<B1, HaloWideTile>,
       run_halo<B1, HaloWideTile, max_k_b1>},
      {"b1xb1_conv2d_halo_128x64", 80, 90, has_halo<B1, HaloTile>, suits_halo<B1, HaloTile>,
       run_halo<B1, HaloTile, max_k_b1>},
      {"b1xb1_conv2d_mma_and_128x256", 80, 90, nullptr, fills<LargeTile>,
       run_conv2d<B1, launch_mma<B1, LargeTile, WindowRows>, max_k_b1>},
      {"b1xb1_conv2d_mma_and_128x128", 80, 90, nullptr, fills<MediumTile>,
       run_conv2d<B1, launch_mma<B1, MediumTile, WindowRows>, max_k_b1>},
      {"b1xb1_conv2d_mma_and_128x64", 80, 90, nullptr, fills<TallTile>,
       run_conv2d<B1, launch_mma<B1, TallTile, WindowRows>, max_k_b1>},
      {"b1xb1_conv2d_mma_and_64x64", 80, 90, nullptr, nullptr,
       run_conv2d<B1, launch_mma<B1, SmallTile, WindowRows>, max_k_b1>},
      {"b1xb1_conv2d_portable", 75, newest_sm, nullptr, nullptr,
       run_conv2d<B1, launch_portable<B1, WindowRows>, max_k_b1>},
  };
  return {best_first,
          static_cast<int>(std::size(best_first)),
          max_k_b1,
          conv2d_panel_row<Format::bits>,
          conv2d_workspace<Format::bits>,
          prepack_conv2d<Format::bits>};
}

}  // namespace bie::kernels::cuda
