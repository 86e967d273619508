// The kernels of b1xb1_conv2d, best first.
#include "bie/kernels/binary_conv2d.h"

#include "kernels/cpu/conv2d/pixel_conv2d_driver.h"
#include "kernels/cpu/grouped_conv2d/depthwise_signs.h"
#include "kernels/cpu/grouped_conv2d/grouped_conv2d_driver.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {

#if defined(BIE_X86)
static constexpr Conv2dKernel avx512_kernel =
    cpu::pixel_conv2d_kernel<cpu::avx512::b1xb1_tile, cpu::avx512::b1xb1_pixel_tile, cpu::binary_width>(
        "b1xb1_conv2d_avx512", Isa::avx512);
static constexpr Conv2dKernel avx512_groups_kernel =
    cpu::with_groups<cpu::avx512::b1xb1_grouped_tile, cpu::binary_width, avx512_kernel>();
static constexpr Conv2dKernel avx512_planes_kernel =
    cpu::with_sign_planes<cpu::avx512::b1xb1_grouped_tile, cpu::avx512::b1xb1_tile, cpu::avx512::b1xb1_pixel_tile,
                          avx512_groups_kernel, avx512_kernel>();
static constexpr Conv2dKernel avx512bw_kernel =
    cpu::conv2d_kernel<cpu::avx512bw::b1xb1_tile, cpu::binary_width>("b1xb1_conv2d_avx512bw", Isa::avx512bw);
static constexpr Conv2dKernel avx2_kernel =
    cpu::conv2d_kernel<cpu::avx2::b1xb1_tile, cpu::binary_width>("b1xb1_conv2d_avx2", Isa::avx2);
#elif defined(BIE_ARM)
static constexpr Conv2dKernel dotprod_kernel =
    cpu::conv2d_kernel<cpu::neon::b1xb1_tile, cpu::binary_width>("b1xb1_conv2d_dotprod", Isa::dotprod);
static constexpr Conv2dKernel neon_kernel =
    cpu::conv2d_kernel<cpu::neon::b1xb1_tile, cpu::binary_width>("b1xb1_conv2d_neon", Isa::neon);
#endif
static constexpr Conv2dKernel portable_kernel =
    cpu::conv2d_kernel<cpu::portable::b1xb1_tile, cpu::binary_width>("b1xb1_conv2d_portable", Isa::portable);

Conv2dTable b1xb1_conv2d_table() {
  static const Conv2dKernel best_first[] = {
#if defined(BIE_X86)
    cpu::with_sign_pixels<cpu::avx512::sign_pixels, avx512_planes_kernel>(),
    cpu::with_groups<cpu::avx2::b1xb1_grouped_tile, cpu::binary_width, avx512bw_kernel>(),
    cpu::with_groups<cpu::avx2::b1xb1_grouped_tile, cpu::binary_width, avx2_kernel>(),
#elif defined(BIE_ARM)
    cpu::with_groups<cpu::dotprod::b1xb1_grouped_tile, cpu::binary_width, dotprod_kernel>(),
    cpu::with_groups<cpu::portable::b1xb1_grouped_tile, cpu::binary_width, neon_kernel>(),
#endif
    cpu::with_groups<cpu::portable::b1xb1_grouped_tile, cpu::binary_width, portable_kernel>(),
    reference::b1xb1_conv2d,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
