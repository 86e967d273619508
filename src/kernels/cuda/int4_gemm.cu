// The kernels of s4xs4_gemm on CUDA, best first.
#include "bie/kernels/int4_gemm.h"

#include "kernels/cuda/gemm_kernels.cuh"

namespace bie::kernels::cuda {

template <>
struct Family<S4> {
  static constexpr Dtype packed = Dtype::s4;
  static constexpr std::int64_t max_k = max_k_s4;
  static constexpr Range range = range_s4;
};
template <>
struct Family<S4Native> : Family<S4> {};

// sm_90 and later emulate the 4-bit form of mma.sync; there 4-bit codes meet as bytes.
GemmTable s4xs4_gemm_table() {
  static const GemmKernel best_first[] = {
      {"s4xs4_gemm_dp4a_gemv", 75, newest_sm, accepts_gemv<S4>, little_work<S4>, run_gemv<S4, PackedS4>},
      {"s4xs4_gemm_wgmma_weight_64x16", 90, 90, has_depth, one_thin_tile,
       run_gemm<S4, launch_wgmma<S4, WgmmaWeightThin, MatrixRows>>},
      {"s4xs4_gemm_wgmma_weight_64x64", 90, 90, has_depth, WeightWgmma::cheapest<WgmmaWeightSmall>,
       run_gemm<S4, launch_wgmma<S4, WgmmaWeightSmall, MatrixRows>>},
      {"s4xs4_gemm_wgmma_weight_64x128", 90, 90, has_depth, WeightWgmma::cheapest<WgmmaWeightHalf>,
       run_gemm<S4, launch_wgmma<S4, WgmmaWeightHalf, MatrixRows>>},
      {"s4xs4_gemm_wgmma_weight_128x128", 90, 90, has_depth, WeightWgmma::cheapest<WgmmaWeightMedium>,
       run_gemm<S4, launch_wgmma<S4, WgmmaWeightMedium, MatrixRows>>},
      {"s4xs4_gemm_wgmma_weight_128x256", 90, 90, has_depth, WeightWgmma::cheapest<WgmmaWeightLarge>,
       run_gemm<S4, launch_wgmma<S4, WgmmaWeightLarge, MatrixRows>>},
      {"s4xs4_gemm_mma_16x128", 80, newest_sm, nullptr, few_rows, run_gemm<S4, launch_mma<S4, ThinTile, MatrixRows>>},
      {"s4xs4_gemm_mma_s4_128x256", 80, 89, nullptr, fills<LargeTile>,
       run_gemm<S4Native, launch_mma<S4Native, LargeTile, MatrixRows>>},
      {"s4xs4_gemm_mma_s4_128x128", 80, 89, nullptr, fills<MediumTile>,
       run_gemm<S4Native, launch_mma<S4Native, MediumTile, MatrixRows>>},
      {"s4xs4_gemm_mma_s4_64x64", 80, 89, nullptr, nullptr,
       run_gemm<S4Native, launch_mma<S4Native, SmallTile, MatrixRows>>},
      {"s4xs4_gemm_mma_128x256", 80, newest_sm, nullptr, fills<LargeTile>,
       run_gemm<S4, launch_mma<S4, LargeTile, MatrixRows>>},
      {"s4xs4_gemm_mma_128x128", 80, newest_sm, nullptr, fills<MediumTile>,
       run_gemm<S4, launch_mma<S4, MediumTile, MatrixRows>>},
      {"s4xs4_gemm_mma_64x64", 80, newest_sm, nullptr, nullptr, run_gemm<S4, launch_mma<S4, SmallTile, MatrixRows>>},
      {"s4xs4_gemm_portable", 75, newest_sm, nullptr, nullptr, run_gemm<S4, launch_portable<S4, MatrixRows>>},
  };
  return {best_first,
          static_cast<int>(std::size(best_first)),
          Family<S4>::max_k,
          gemm_panel_row<Format::nibbles>,
          gemm_workspace<Format::wide>,
          prepack_gemm<Format::nibbles>};
}

}  // namespace bie::kernels::cuda
