// The AMX tiles over emulated registers, in the sweeps of every width: products of any size, also those that the
// kernels leave to the AVX-512 tiles.
#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "conv2d_sweep.h"
#include "gemm_sweep.h"
#include "kernels/cpu/conv2d_driver.h"
#include "kernels/cpu/gemm_driver.h"

#if defined(__x86_64__)

namespace bie::kernels::cpu::amx_emulated {
extern const Tile s8xs8_tile, s4xs4_tile;
}

namespace bie::kernels::test {
namespace {

using namespace cpu;

// As in every table the reference stands last: under a cap it is what runs.

template <const Tile& tile, const Tile& packs, const Width& width, GemmTable (*table)()>
GemmTable gemms() {
  static const GemmKernel kernels[] = {gemm_kernel_of_two<tile, packs, width, 0>("emulated", Isa::avx512),
                                       table().back()};
  return table_of(kernels);
}

template <const Tile& tile, const Tile& packs, const Width& width, Conv2dTable (*table)()>
Conv2dTable convolutions() {
  static const Conv2dKernel kernels[] = {[] {
                                           Conv2dKernel kernel = conv2d_kernel<packs, width>("emulated", Isa::avx512);
                                           kernel.run = conv2d_kernel<tile, width>("", Isa::avx512).run;
                                           return kernel;
                                         }(),
                                         table().back()};
  return table_of(kernels);
}

constexpr GemmWidth gemm_widths[] = {
    {"s4xs4", Dtype::s4, -8, 7, max_k_s4,
     gemms<amx_emulated::s4xs4_tile, avx512::s4xs4_tile, int4_width, s4xs4_gemm_table>},
    {"s8xs8", Dtype::s8, -128, 127, max_k_s8,
     gemms<amx_emulated::s8xs8_tile, avx512::s8xs8_tile, int8_width, s8xs8_gemm_table>},
};

constexpr Conv2dWidth conv2d_widths[] = {
    {"s4xs4", Dtype::s4, -8, 7, max_k_s4,
     convolutions<amx_emulated::s4xs4_tile, avx512::s4xs4_tile, int4_width, s4xs4_conv2d_table>},
    {"s8xs8", Dtype::s8, -128, 127, max_k_s8,
     convolutions<amx_emulated::s8xs8_tile, avx512::s8xs8_tile, int8_width, s8xs8_conv2d_table>},
};

INSTANTIATE_TEST_SUITE_P(AmxEmulated, GemmRows, testing::ValuesIn(gemm_widths),
                         [](const auto& width) { return name_of(width); });
INSTANTIATE_TEST_SUITE_P(AmxEmulated, Conv2dRows, testing::ValuesIn(conv2d_widths),
                         [](const auto& width) { return name_of(width); });
INSTANTIATE_TEST_SUITE_P(AmxEmulated, Conv2dTails, testing::ValuesIn(conv2d_widths),
                         [](const auto& width) { return name_of(width); });

}  // namespace
}  // namespace bie::kernels::test

#endif
