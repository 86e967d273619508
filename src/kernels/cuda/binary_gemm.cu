// The kernels of b1xb1_gemm on CUDA, best first.
#include "bie/kernels/binary_gemm.h"

#include "kernels/cuda/gemm_kernels.cuh"

namespace bie::kernels::cuda {

template <>
struct Family<B1> {
  static constexpr Dtype packed = Dtype::bits;
  static constexpr std::int64_t max_k = max_k_b1;
  static constexpr Range range{};
};

// The binary form of mma.sync is emulated on sm_100 and sm_120; until 8-bit kernels serve them there, the portable one
// does.
GemmTable b1xb1_gemm_table() {
  static const GemmKernel best_first[] = {
      {"b1xb1_gemm_popc_gemv", 75, newest_sm, accepts_gemv<B1>, little_work<B1>, run_gemv<B1, PackedBits>},
      {"b1xb1_gemm_wgmma_weight_64x16", 90, 90, has_depth, one_thin_tile,
       run_gemm<B1, launch_wgmma<B1, WgmmaWeightThin, MatrixRows>>},
      {"b1xb1_gemm_wgmma_weight_64x64", 90, 90, has_depth, MixedWgmma::cheapest<WgmmaWeightSmall>,
       run_gemm<B1, launch_wgmma<B1, WgmmaWeightSmall, MatrixRows>>},
      {"b1xb1_gemm_wgmma_weight_64x128", 90, 90, has_depth, MixedWgmma::cheapest<WgmmaWeightHalf>,
       run_gemm<B1, launch_wgmma<B1, WgmmaWeightHalf, MatrixRows>>},
      {"b1xb1_gemm_wgmma_128x128", 90, 90, has_depth, MixedWgmma::cheapest<WgmmaMedium>,
       run_gemm<B1, launch_wgmma<B1, WgmmaMedium, MatrixRows>>},
      {"b1xb1_gemm_wgmma_128x256", 90, 90, has_depth, MixedWgmma::cheapest<WgmmaLarge>,
       run_gemm<B1, launch_wgmma<B1, WgmmaLarge, MatrixRows>>},
      {"b1xb1_gemm_mma_and_16x128", 80, 90, nullptr, few_rows, run_gemm<B1, launch_mma<B1, ThinTile, MatrixRows>>},
      {"b1xb1_gemm_mma_and_128x256", 80, 90, nullptr, fills<LargeTile>,
       run_gemm<B1, launch_mma<B1, LargeTile, MatrixRows>>},
      {"b1xb1_gemm_mma_and_128x128", 80, 90, nullptr, fills<MediumTile>,
       run_gemm<B1, launch_mma<B1, MediumTile, MatrixRows>>},
      {"b1xb1_gemm_mma_and_64x64", 80, 90, nullptr, nullptr, run_gemm<B1, launch_mma<B1, SmallTile, MatrixRows>>},
      {"b1xb1_gemm_portable", 75, newest_sm, nullptr, nullptr, run_gemm<B1, launch_portable<B1, MatrixRows>>},
  };
  return {best_first,
          static_cast<int>(std::size(best_first)),
          Family<B1>::max_k,
          gemm_panel_row<Format::bits>,
          gemm_workspace<Format::bits>,
          prepack_gemm<Format::bits>};
}

}  // namespace bie::kernels::cuda
