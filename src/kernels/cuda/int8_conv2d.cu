// The kernels of s8xs8_conv2d on CUDA, best first.
#include "bie/kernels/int8_conv2d.h"

#include "kernels/cuda/halo_kernels.cuh"
#include "kernels/cuda/line_kernels.cuh"
#include "kernels/cuda/pixel_kernels.cuh"

namespace bie::kernels::cuda {

Conv2dTable s8xs8_conv2d_table() {
  using Tiles = WgmmaTiles<WgmmaWeightSmall, WgmmaTall, WgmmaMedium, WgmmaLarge>;
  constexpr auto maps = has_window_map<Format::bytes>;
  static const Conv2dKernel best_first[] = {
      {"s8xs8_conv2d_mma_lines", 80, newest_sm, has_lines<S8>, suits_lines<S8>, run_lines<S8, max_k_s8>, takes_lines},
      {"s8xs8_conv2d_wgmma_pixels_256", 90, 90, has_pixels<S8, PixelTile<256>>, suits_pixels<S8, PixelTile<256>>,
       run_pixels<S8, PixelTile<256>, max_k_s8>, takes_halves},
      {"s8xs8_conv2d_wgmma_pixels_128", 90, 90, has_pixels<S8, PixelTile<128>>, suits_pixels<S8, PixelTile<128>>,
       run_pixels<S8, PixelTile<128>, max_k_s8>, takes_halves},
      {"s8xs8_conv2d_wgmma_pixels_64", 90, 90, has_pixels<S8, PixelTile<64>>, suits_pixels<S8, PixelTile<64>>,
       run_pixels<S8, PixelTile<64>, max_k_s8>, takes_halves},
      {"s8xs8_conv2d_halo_pipeline_128x128", 90, 90, has_halo_pipeline<S8, PipelineWide>,
       suits_halo_pipeline<S8, PipelineWide>, run_halo_pipeline<S8, PipelineWide, max_k_s8>, takes_halves},
      {"s8xs8_conv2d_halo_pipeline_256x64", 90, 90, has_halo_pipeline<S8, PipelineTall>,
       suits_halo_pipeline<S8, PipelineTall>, run_halo_pipeline<S8, PipelineTall, max_k_s8>, takes_halves},
      {"s8xs8_conv2d_halo_128x128", 80, newest_sm, has_halo<S8, HaloWideTile>, suits_halo<S8, HaloWideTile>,
       run_halo<S8, HaloWideTile, max_k_s8>},
      {"s8xs8_conv2d_halo_128x64", 80, newest_sm, has_halo<S8, HaloTile>, suits_halo<S8, HaloTile>,
       run_halo<S8, HaloTile, max_k_s8>},
      {"s8xs8_conv2d_wgmma_weight_64x64", 90, 90, maps, suits_window_map<Format::bytes, Tiles, WgmmaWeightSmall>,
       run_conv2d<S8, launch_wgmma<S8, WgmmaWeightSmall, WindowRows>, max_k_s8>},
      {"s8xs8_conv2d_wgmma_128x64", 90, 90, maps, suits_window_map<Format::bytes, Tiles, WgmmaTall>,
       run_conv2d<S8, launch_wgmma<S8, WgmmaTall, WindowRows>, max_k_s8>},
      {"s8xs8_conv2d_wgmma_128x128", 90, 90, maps, suits_window_map<Format::bytes, Tiles, WgmmaMedium>,
       run_conv2d<S8, launch_wgmma<S8, WgmmaMedium, WindowRows>, max_k_s8>},
      {"s8xs8_conv2d_wgmma_128x256", 90, 90, maps, suits_window_map<Format::bytes, Tiles, WgmmaLarge>,
       run_conv2d<S8, launch_wgmma<S8, WgmmaLarge, WindowRows>, max_k_s8>},
      {"s8xs8_conv2d_mma_128x256", 80, newest_sm, nullptr, fills<LargeTile>,
       run_conv2d<S8, launch_mma<S8, LargeTile, WindowRows>, max_k_s8>},
      {"s8xs8_conv2d_mma_128x128", 80, newest_sm, nullptr, fills<MediumTile>,
       run_conv2d<S8, launch_mma<S8, MediumTile, WindowRows>, max_k_s8>},
      {"s8xs8_conv2d_mma_128x64", 80, newest_sm, nullptr, fills<TallTile>,
       run_conv2d<S8, launch_mma<S8, TallTile, WindowRows>, max_k_s8>},
      {"s8xs8_conv2d_mma_64x64", 80, newest_sm, nullptr, nullptr,
       run_conv2d<S8, launch_mma<S8, SmallTile, WindowRows>, max_k_s8>},
      {"s8xs8_conv2d_portable", 75, newest_sm, nullptr, nullptr,
       run_conv2d<S8, launch_portable<S8, WindowRows>, max_k_s8>},
  };
  return {best_first,
          static_cast<int>(std::size(best_first)),
          max_k_s8,
          conv2d_panel_row<Format::bytes>,
          conv2d_workspace<Format::bytes>,
          prepack_conv2d<Format::bytes>};
}

}  // namespace bie::kernels::cuda
