// s8xs8 convolution: the common sweeps, and the ends of the range at the greatest depth.
#include "bie/kernels/int8_conv2d.h"

#include "conv2d_sweep.h"
#include "formulas.h"

namespace bie::kernels::test {
namespace {

constexpr Conv2dWidth width = {"s8xs8", Dtype::s8, -128, 127, max_k_s8, s8xs8_conv2d_table};

TEST(Int8Conv2d, EndsOfTheRangeAtTheGreatestDepth) {
  // 131071 is a prime: one tap of that many channels, and nine taps of almost as many in all.
  for (const Conv2dShape& s : {Conv2dShape{2, max_k_s8, 1, 1, 2, 1, 1}, Conv2dShape{2, max_k_s8 / 9, 3, 3, 2, 3, 3}})
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
      Conv2dProblem p = blank_conv2d(width, {s, Dtype::s8, Dtype::s32, layout, layout});
      const std::size_t half_x = p.x.size() / 2, half_w = p.weight.size() / 2;
      for (std::size_t i = 0; i < p.x.size(); ++i) p.x[i] = i < half_x ? 0x80 : 0x7f;
      for (std::size_t i = 0; i < p.weight.size(); ++i) p.weight[i] = i < half_w ? 0x80 : 0x7f;
      const std::int32_t depth = static_cast<std::int32_t>(s.depth());
      expect_every_kernel(p, {16384 * depth, -128 * 127 * depth, -128 * 127 * depth, 127 * 127 * depth});
    }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Int8, Conv2dRows, testing::Values(width), name_of);
INSTANTIATE_TEST_SUITE_P(Int8, Conv2dRefusals, testing::Values(width), name_of);

}  // namespace bie::kernels::test
