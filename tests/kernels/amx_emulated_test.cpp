// The AMX tiles over emulated registers, in the sweeps of every width: products of any size, also those that the
// kernels leave to the AVX-512 tiles.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "conv2d_sweep.h"
#include "gemm_sweep.h"
#include "kernels/cpu/conv2d/conv2d_driver.h"
#include "kernels/cpu/gemm/gemm_driver.h"

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

// The tiles take each group by itself, so a depthwise convolution of many channels repeats what one of few does.
constexpr std::int64_t depthwise_channels = 72;

constexpr Conv2dWidth conv2d_widths[] = {
    {"s4xs4", Dtype::s4, -8, 7, max_k_s4,
     convolutions<amx_emulated::s4xs4_tile, avx512::s4xs4_tile, int4_width, s4xs4_conv2d_table>, 0, depthwise_channels},
    {"s8xs8", Dtype::s8, -128, 127, max_k_s8,
     convolutions<amx_emulated::s8xs8_tile, avx512::s8xs8_tile, int8_width, s8xs8_conv2d_table>, 0, depthwise_channels},
};

/// None under a cap below AVX-512, where nothing but the reference would run; the runs above it have them. host() is
/// not asked before main: IsaDeathTest sets the variable first.
template <class Width, std::size_t count>
std::vector<Width> unless_capped(const Width (&widths)[count]) {
  const char* cap = std::getenv("BIE_MAX_ISA");
  for (const IsaFacts& last : isa_facts)
    if (cap != nullptr && std::strcmp(cap, last.name) == 0 && last.isa < Isa::avx512) return {};
  return {std::begin(widths), std::end(widths)};
}

INSTANTIATE_TEST_SUITE_P(AmxEmulated, GemmRows, testing::ValuesIn(unless_capped(gemm_widths)),
                         [](const auto& width) { return name_of(width); });
INSTANTIATE_TEST_SUITE_P(AmxEmulated, Conv2dRows, testing::ValuesIn(unless_capped(conv2d_widths)),
                         [](const auto& width) { return name_of(width); });
INSTANTIATE_TEST_SUITE_P(AmxEmulated, Conv2dTails, testing::ValuesIn(unless_capped(conv2d_widths)),
                         [](const auto& width) { return name_of(width); });

}  // namespace
}  // namespace bie::kernels::test

#endif
