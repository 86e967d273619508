// The kernels of s4xs4_conv2d on CUDA, best first.
#include "bie/kernels/int4_conv2d.h"

#include "kernels/cuda/halo_kernels.cuh"
#include "kernels/cuda/line_kernels.cuh"
#include "kernels/cuda/pixel_kernels.cuh"

namespace bie::kernels::cuda {

// sm_90 and later emulate the 4-bit form of mma.sync; there 4-bit codes meet as bytes.
Conv2dTable s4xs4_conv2d_table() {
  using Tiles = WgmmaTiles<WgmmaWeightSmall, WgmmaWeightHalf, WgmmaWeightMedium, WgmmaWeightLarge>;
  constexpr auto maps = has_window_map<Format::wide>;
  static const Conv2dKernel best_first[] = {
      {"s4xs4_conv2d_mma_lines", 80, newest_sm, has_lines<S4>, suits_lines<S4>, run_lines<S4, max_k_s4>, takes_lines},
      {"s4xs4_conv2d_wgmma_pixels_256", 90, 90, has_pixels<S4, PixelTile<256>>, suits_pixels<S4, PixelTile<256>>,
       run_pixels<S4, PixelTile<256>, max_k_s4>, takes_halves},
      {"s4xs4_conv2d_wgmma_pixels_128", 90, 90, has_pixels<S4, PixelTile<128>>, suits_pixels<S4, PixelTile<128>>,
       run_pixels<S4, PixelTile<128>, max_k_s4>, takes_halves},
      {"s4xs4_conv2d_wgmma_pixels_64", 90, 90, has_pixels<S4, PixelTile<64>>, suits_pixels<S4, PixelTile<64>>,
       run_pixels<S4, PixelTile<64>, max_k_s4>, takes_halves},
      {"s4xs4_conv2d_halo_pipeline_128x128", 90, 90, has_halo_pipeline<S4, PipelineWide>,
       suits_halo_pipeline<S4, PipelineWide>, run_halo_pipeline<S4, PipelineWide, max_k_s4>, takes_halves},
      {"s4xs4_conv2d_halo_pipeline_256x64", 90, 90, has_halo_pipeline<S4, PipelineTall>,
       suits_halo_pipeline<S4, PipelineTall>, run_halo_pipeline<S4, PipelineTall, max_k_s4>, takes_halves},
      {"s4xs4_conv2d_halo_128x128", 80, newest_sm, has_halo<S4, HaloWideTile>, suits_halo<S4, HaloWideTile>,
       run_halo<S4, HaloWideTile, max_k_s4>},
      {"s4xs4_conv2d_halo_128x64", 80, newest_sm, has_halo<S4, HaloTile>, suits_halo<S4, HaloTile>,
       run_halo<S4, HaloTile, max_k_s4>},
      {"s4xs4_conv2d_wgmma_weight_64x64", 90, 90, maps, suits_window_map<Format::wide, Tiles, WgmmaWeightSmall>,
       run_conv2d<S4, launch_wgmma<S4, WgmmaWeightSmall, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_wgmma_weight_64x128", 90, 90, maps, suits_window_map<Format::wide, Tiles, WgmmaWeightHalf>,
       run_conv2d<S4, launch_wgmma<S4, WgmmaWeightHalf, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_wgmma_weight_128x128", 90, 90, maps, suits_window_map<Format::wide, Tiles, WgmmaWeightMedium>,
       run_conv2d<S4, launch_wgmma<S4, WgmmaWeightMedium, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_wgmma_weight_128x256", 90, 90, maps, suits_window_map<Format::wide, Tiles, WgmmaWeightLarge>,
       run_conv2d<S4, launch_wgmma<S4, WgmmaWeightLarge, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_mma_s4_128x256", 80, 89, nullptr, fills<LargeTile>,
       run_conv2d<S4Native, launch_mma<S4Native, LargeTile, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_mma_s4_128x128", 80, 89, nullptr, fills<MediumTile>,
       run_conv2d<S4Native, launch_mma<S4Native, MediumTile, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_mma_s4_128x64", 80, 89, nullptr, fills<TallTile>,
       run_conv2d<S4Native, launch_mma<S4Native, TallTile, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_mma_s4_64x64", 80, 89, nullptr, nullptr,
       run_conv2d<S4Native, launch_mma<S4Native, SmallTile, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_mma_128x256", 80, newest_sm, nullptr, fills<LargeTile>,
       run_conv2d<S4, launch_mma<S4, LargeTile, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_mma_128x128", 80, newest_sm, nullptr, fills<MediumTile>,
       run_conv2d<S4, launch_mma<S4, MediumTile, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_mma_128x64", 80, newest_sm, nullptr, fills<TallTile>,
       run_conv2d<S4, launch_mma<S4, TallTile, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_mma_64x64", 80, newest_sm, nullptr, nullptr,
       run_conv2d<S4, launch_mma<S4, SmallTile, WindowRows>, max_k_s4>},
      {"s4xs4_conv2d_portable", 75, newest_sm, nullptr, nullptr,
       run_conv2d<S4, launch_portable<S4, WindowRows>, max_k_s4>},
  };
  return {best_first,
          static_cast<int>(std::size(best_first)),
          max_k_s4,
          conv2d_panel_row<Format::nibbles>,
          conv2d_workspace<Format::wide>,
          prepack_conv2d<Format::nibbles>};
}

}  // namespace bie::kernels::cuda
