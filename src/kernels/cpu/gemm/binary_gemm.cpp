// The kernels of b1xb1_gemm, best first.
#include "bie/kernels/binary_gemm.h"

#include "kernels/cpu/gemm/gemm_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {

GemmTable b1xb1_gemm_table() {
  static const GemmKernel best_first[] = {
#if defined(BIE_X86)
    cpu::gemm_kernel<cpu::avx512::b1xb1_tile, cpu::binary_width>("b1xb1_gemm_avx512", Isa::avx512),
    cpu::gemm_kernel<cpu::avx512bw::b1xb1_tile, cpu::binary_width>("b1xb1_gemm_avx512bw", Isa::avx512bw),
    cpu::gemm_kernel<cpu::avx2::b1xb1_tile, cpu::binary_width>("b1xb1_gemm_avx2", Isa::avx2),
#elif defined(BIE_ARM)
    cpu::gemm_kernel<cpu::neon::b1xb1_tile, cpu::binary_width>("b1xb1_gemm_neon", Isa::neon),
#endif
    cpu::gemm_kernel<cpu::portable::b1xb1_tile, cpu::binary_width>("b1xb1_gemm_portable", Isa::portable),
    reference::b1xb1_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
