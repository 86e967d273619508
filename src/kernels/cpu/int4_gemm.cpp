// The rows of s4xs4_gemm, best first.
#include "bie/kernels/int4_gemm.h"

#include "kernels/cpu/gemm_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {

GemmTable s4xs4_gemm_table() {
  static const GemmKernel rows[] = {
#if defined(BIE_X86)
    cpu::gemm_row<cpu::avx512::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_avx512", Isa::avx512),
    cpu::gemm_row<cpu::avxvnni::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_avxvnni", Isa::avxvnni),
    cpu::gemm_row<cpu::avx512bw::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_avx512bw", Isa::avx512bw),
    cpu::gemm_row<cpu::avx2::s4xs4_tile, cpu::int4_width>("s4xs4_gemm_avx2", Isa::avx2),
#endif
    reference::s4xs4_gemm,
  };
  return {rows, static_cast<int>(sizeof rows / sizeof *rows)};
}

}  // namespace bie::kernels
