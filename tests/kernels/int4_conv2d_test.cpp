// s4xs4 convolution: the common sweeps, the ends of the range at the greatest depth, pad nibbles.
#include "bie/kernels/int4_conv2d.h"

#include "conv2d_sweep.h"
#include "formulas.h"

namespace bie::kernels::test {
namespace {

constexpr Conv2dWidth width = {"s4xs4", Dtype::s4, -8, 7, max_k_s4, s4xs4_conv2d_table};

TEST(Int4Conv2d, EndsOfTheRangeAtTheGreatestDepth) {
  for (const Conv2dShape& s : {Conv2dShape{2, max_k_s4 / 9, 3, 3, 2, 3, 3}, Conv2dShape{2, max_k_s4, 1, 1, 2, 1, 1}}) {
    Conv2dProblem p = blank_conv2d(width, {s, Dtype::s8, Dtype::s32, ImageLayout::nhwc, ImageLayout::nhwc});
    const std::size_t half_x = p.x.size() / 2, half_w = p.weight.size() / 2;
    for (std::size_t i = 0; i < p.x.size(); ++i) p.x[i] = i < half_x ? 0xf8 : 7;
    for (std::size_t i = 0; i < p.weight.size(); ++i) p.weight[i] = i < half_w ? 0x88 : 0x77;
    const std::int32_t depth = static_cast<std::int32_t>(s.depth());
    expect_every_kernel(p, {64 * depth, -56 * depth, -56 * depth, 49 * depth});
  }
}

TEST(Int4Conv2d, PadNibblesOfWeightsAreIgnored) {
  ReplayableRng rng;
  Conv2dProblem p = random_conv2d(width, {{1, 3, 5, 5, 18, 3, 3, 1, 1, 1, 1}}, rng);
  const std::vector<std::int32_t> sums = expected_sums(p);
  for (const int pad : {-1, 0, 7}) {
    for (std::int64_t o = 0; o < 18; ++o) write_code(p.weight.data() + o * 14, Dtype::s4, 27, pad);
    expect_every_kernel(p, sums);
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Int4, Conv2dRows, testing::Values(width), name_of);
INSTANTIATE_TEST_SUITE_P(Int4, Conv2dRefusals, testing::Values(width), name_of);

}  // namespace bie::kernels::test
