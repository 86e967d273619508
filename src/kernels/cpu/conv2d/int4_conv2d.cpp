// The kernels of s4xs4_conv2d, best first.
#include "bie/kernels/int4_conv2d.h"

#include "kernels/cpu/conv2d/conv2d_driver.h"
#include "kernels/cpu/conv2d/pixel_conv2d_driver.h"
#include "kernels/cpu/grouped_conv2d/grouped_conv2d_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {

#if defined(BIE_X86)
static constexpr Conv2dKernel avx512_kernel =
    cpu::pixel_conv2d_kernel<cpu::avx512::s4xs4_tile, cpu::avx512::s4xs4_pixel_tile, cpu::int4_width>(
        "s4xs4_conv2d_avx512", Isa::avx512);
static constexpr Conv2dKernel amx_kernel =
    cpu::deep_conv2d_kernel<cpu::amx::s4xs4_tile, avx512_kernel, cpu::int4_width>("s4xs4_conv2d_amx", Isa::amx);
static constexpr Conv2dKernel avxvnni_kernel =
    cpu::conv2d_kernel<cpu::avxvnni::s4xs4_tile, cpu::int4_width>("s4xs4_conv2d_avxvnni", Isa::avxvnni);
static constexpr Conv2dKernel avx512bw_kernel =
    cpu::conv2d_kernel<cpu::avx512bw::s4xs4_tile, cpu::int4_width>("s4xs4_conv2d_avx512bw", Isa::avx512bw);
static constexpr Conv2dKernel avx2_kernel =
    cpu::conv2d_kernel<cpu::avx2::s4xs4_tile, cpu::int4_width>("s4xs4_conv2d_avx2", Isa::avx2);
#elif defined(BIE_ARM)
static constexpr Conv2dKernel i8mm_kernel =
    cpu::conv2d_kernel<cpu::i8mm::s4xs4_tile, cpu::int4_width>("s4xs4_conv2d_i8mm", Isa::i8mm);
static constexpr Conv2dKernel dotprod_kernel =
    cpu::conv2d_kernel<cpu::dotprod::s4xs4_tile, cpu::int4_width>("s4xs4_conv2d_dotprod", Isa::dotprod);
static constexpr Conv2dKernel neon_kernel =
    cpu::conv2d_kernel<cpu::neon::s4xs4_tile, cpu::int4_width>("s4xs4_conv2d_neon", Isa::neon);
#endif
static constexpr Conv2dKernel portable_kernel =
    cpu::conv2d_kernel<cpu::portable::s4xs4_tile, cpu::int4_width>("s4xs4_conv2d_portable", Isa::portable);

Conv2dTable s4xs4_conv2d_table() {
  static const Conv2dKernel best_first[] = {
#if defined(BIE_X86)
    cpu::with_groups<cpu::avx512::s4xs4_grouped_tile, cpu::int4_width, amx_kernel>(),
    cpu::with_groups<cpu::avx512::s4xs4_grouped_tile, cpu::int4_width, avx512_kernel>(),
    cpu::with_groups<cpu::avx2::s4xs4_grouped_tile, cpu::int4_width, avxvnni_kernel>(),
    cpu::with_groups<cpu::avx2::s4xs4_grouped_tile, cpu::int4_width, avx512bw_kernel>(),
    cpu::with_groups<cpu::avx2::s4xs4_grouped_tile, cpu::int4_width, avx2_kernel>(),
#elif defined(BIE_ARM)
    cpu::with_groups<cpu::dotprod::s4xs4_grouped_tile, cpu::int4_width, i8mm_kernel>(),
    cpu::with_groups<cpu::dotprod::s4xs4_grouped_tile, cpu::int4_width, dotprod_kernel>(),
    cpu::with_groups<cpu::portable::s4xs4_grouped_tile, cpu::int4_width, neon_kernel>(),
#endif
    cpu::with_groups<cpu::portable::s4xs4_grouped_tile, cpu::int4_width, portable_kernel>(),
    reference::s4xs4_conv2d,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
