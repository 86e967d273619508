// The kernels of s8xs8_gemm on CUDA, best first.
#include "bie/kernels/int8_gemm.h"

#include "kernels/cuda/gemm_kernels.cuh"

namespace bie::kernels::cuda {

template <>
struct Family<S8> {
  static constexpr Dtype packed = Dtype::s8;
  static constexpr std::int64_t max_k = max_k_s8;
  static constexpr Range range = range_s8;
};

GemmTable s8xs8_gemm_table() {
  static const GemmKernel best_first[] = {
      {"s8xs8_gemm_dp4a_gemv", 75, newest_sm, accepts_gemv<S8>, little_work<S8>, run_gemv<S8, void>},
      {"s8xs8_gemm_wgmma_weight_64x16", 90, 90, has_depth, one_thin_tile,
       run_gemm<S8, launch_wgmma<S8, WgmmaWeightThin, MatrixRows>>},
      {"s8xs8_gemm_wgmma_weight_64x64", 90, 90, has_depth, MixedWgmma::cheapest<WgmmaWeightSmall>,
       run_gemm<S8, launch_wgmma<S8, WgmmaWeightSmall, MatrixRows>>},
      {"s8xs8_gemm_wgmma_weight_64x128", 90, 90, has_depth, MixedWgmma::cheapest<WgmmaWeightHalf>,
       run_gemm<S8, launch_wgmma<S8, WgmmaWeightHalf, MatrixRows>>},
      {"s8xs8_gemm_wgmma_128x128", 90, 90, has_depth, MixedWgmma::cheapest<WgmmaMedium>,
       run_gemm<S8, launch_wgmma<S8, WgmmaMedium, MatrixRows>>},
      {"s8xs8_gemm_wgmma_128x256", 90, 90, has_depth, MixedWgmma::cheapest<WgmmaLarge>,
       run_gemm<S8, launch_wgmma<S8, WgmmaLarge, MatrixRows>>},
      {"s8xs8_gemm_mma_16x128", 80, newest_sm, nullptr, few_rows, run_gemm<S8, launch_mma<S8, ThinTile, MatrixRows>>},
      {"s8xs8_gemm_mma_128x256", 80, newest_sm, nullptr, fills<LargeTile>,
       run_gemm<S8, launch_mma<S8, LargeTile, MatrixRows>>},
      {"s8xs8_gemm_mma_128x128", 80, newest_sm, nullptr, fills<MediumTile>,
       run_gemm<S8, launch_mma<S8, MediumTile, MatrixRows>>},
      {"s8xs8_gemm_mma_64x64", 80, newest_sm, nullptr, nullptr, run_gemm<S8, launch_mma<S8, SmallTile, MatrixRows>>},
      {"s8xs8_gemm_portable", 75, newest_sm, nullptr, nullptr, run_gemm<S8, launch_portable<S8, MatrixRows>>},
  };
  return {best_first,
          static_cast<int>(std::size(best_first)),
          Family<S8>::max_k,
          gemm_panel_row<Format::bytes>,
          gemm_workspace<Format::bytes>,
          prepack_gemm<Format::bytes>};
}

}  // namespace bie::kernels::cuda
