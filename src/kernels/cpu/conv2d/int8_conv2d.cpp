// The kernels of s8xs8_conv2d, best first.
#include "bie/kernels/int8_conv2d.h"

#include "kernels/cpu/conv2d/conv2d_driver.h"
#include "kernels/cpu/conv2d/pixel_conv2d_driver.h"
#include "kernels/cpu/grouped_conv2d/grouped_conv2d_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {

#if defined(BIE_X86)
static constexpr Conv2dKernel avx512_kernel =
    cpu::pixel_conv2d_kernel<cpu::avx512::s8xs8_tile, cpu::avx512::s8xs8_pixel_tile, cpu::int8_width>(
        "s8xs8_conv2d_avx512", Isa::avx512);
static constexpr Conv2dKernel amx_kernel =
    cpu::deep_conv2d_kernel<cpu::amx::s8xs8_tile, avx512_kernel, cpu::int8_width>("s8xs8_conv2d_amx", Isa::amx);
static constexpr Conv2dKernel avxvnni_kernel =
    cpu::conv2d_kernel<cpu::avxvnni::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_avxvnni", Isa::avxvnni);
static constexpr Conv2dKernel avx512bw_kernel =
    cpu::conv2d_kernel<cpu::avx512bw::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_avx512bw", Isa::avx512bw);
static constexpr Conv2dKernel avx2_kernel =
    cpu::conv2d_kernel<cpu::avx2::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_avx2", Isa::avx2);
#elif defined(BIE_ARM)
static constexpr Conv2dKernel i8mm_kernel =
    cpu::conv2d_kernel<cpu::i8mm::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_i8mm", Isa::i8mm);
static constexpr Conv2dKernel dotprod_kernel =
    cpu::conv2d_kernel<cpu::dotprod::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_dotprod", Isa::dotprod);
static constexpr Conv2dKernel neon_kernel =
    cpu::conv2d_kernel<cpu::neon::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_neon", Isa::neon);
#endif
static constexpr Conv2dKernel portable_kernel =
    cpu::conv2d_kernel<cpu::portable::s8xs8_tile, cpu::int8_width>("s8xs8_conv2d_portable", Isa::portable);

Conv2dTable s8xs8_conv2d_table() {
  static const Conv2dKernel best_first[] = {
#if defined(BIE_X86)
    cpu::with_groups<cpu::avx512::s8xs8_grouped_tile, cpu::int8_width, amx_kernel>(),
    cpu::with_groups<cpu::avx512::s8xs8_grouped_tile, cpu::int8_width, avx512_kernel>(),
    cpu::with_groups<cpu::avx2::s8xs8_grouped_tile, cpu::int8_width, avxvnni_kernel>(),
    cpu::with_groups<cpu::avx2::s8xs8_grouped_tile, cpu::int8_width, avx512bw_kernel>(),
    cpu::with_groups<cpu::avx2::s8xs8_grouped_tile, cpu::int8_width, avx2_kernel>(),
#elif defined(BIE_ARM)
    cpu::with_groups<cpu::dotprod::s8xs8_grouped_tile, cpu::int8_width, i8mm_kernel>(),
    cpu::with_groups<cpu::dotprod::s8xs8_grouped_tile, cpu::int8_width, dotprod_kernel>(),
    cpu::with_groups<cpu::portable::s8xs8_grouped_tile, cpu::int8_width, neon_kernel>(),
#endif
    cpu::with_groups<cpu::portable::s8xs8_grouped_tile, cpu::int8_width, portable_kernel>(),
    reference::s8xs8_conv2d,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
