// The kernels of s8xs8_conv2d, best first.
#include "bie/kernels/int8_conv2d.h"

#include "kernels/cpu/conv2d_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {

Conv2dTable s8xs8_conv2d_table() {
  static const Conv2dKernel best_first[] = {
#if defined(BIE_X86)
    cpu::conv2d_kernel<cpu::avx512::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_avx512", Isa::avx512),
    cpu::conv2d_kernel<cpu::avxvnni::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_avxvnni", Isa::avxvnni),
    cpu::conv2d_kernel<cpu::avx512bw::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_avx512bw", Isa::avx512bw),
    cpu::conv2d_kernel<cpu::avx2::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_avx2", Isa::avx2),
#endif
    reference::s8xs8_conv2d,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
