// The kernels of s4xs4_gemm, best first.
#include "bie/kernels/int4_gemm.h"

#include "kernels/cpu/gemm/gemm_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {

GemmTable s4xs4_gemm_table() {
  static const GemmKernel best_first[] = {
#if defined(BIE_X86)
    cpu::gemm_kernel_of_two<cpu::amx::s4xs4_tile, cpu::avx512::s4xs4_tile, cpu::int4_width, 8>("s4xs4_gemm_amx",
                                                                                               Isa::amx),
    cpu::gemm_kernel<cpu::avx512::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_avx512", Isa::avx512),
    cpu::gemm_kernel<cpu::avxvnni::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_avxvnni", Isa::avxvnni),
    cpu::gemm_kernel<cpu::avx512bw::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_avx512bw", Isa::avx512bw),
    cpu::gemm_kernel<cpu::avx2::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_avx2", Isa::avx2),
#elif defined(BIE_ARM)
    cpu::gemm_kernel<cpu::i8mm::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_i8mm", Isa::i8mm),
    cpu::gemm_kernel<cpu::dotprod::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_dotprod", Isa::dotprod),
    cpu::gemm_kernel<cpu::neon::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_neon", Isa::neon),
#endif
    cpu::gemm_kernel<cpu::portable::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_portable", Isa::portable),
    reference::s4xs4_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
