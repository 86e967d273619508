// s8xs8: the common sweeps, the ends of the range at the greatest depth, ties, and every tie of the store.
#include "bie/kernels/int8_gemm.h"

#include "formulas.h"
#include "gemm_sweep.h"

namespace bie::kernels::test {
namespace {

constexpr GemmWidth width = {"s8xs8", Dtype::s8, -128, 127, max_k_s8, s8xs8_gemm_table};

TEST(Int8Gemm, EndsOfTheRangeAtTheGreatestDepth) {
  const std::int64_t k = max_k_s8;
  const int ends[] = {-128, 127};
  for (const Dtype in : {Dtype::s8, Dtype::f32}) {
    GemmProblem p = blank_gemm(width, {{2, 2, k}, in, Dtype::s32});
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t end = 0; end < 2; ++end) {
        write_code(p.weight.data() + end * k, Dtype::s8, i, ends[end]);
        if (in == Dtype::s8)
          write_code(p.x.data() + end * k, in, i, ends[end]);
        else  // far outside, so that the clamp makes the code
          write_float(p.x.data() + end * p.x_stride(), in, i, end == 0 ? -3e38f : 3e38f);
      }
    const std::int32_t depth = static_cast<std::int32_t>(k);
    expect_every_kernel(p, {16384 * depth, -128 * 127 * depth, -128 * 127 * depth, 127 * 127 * depth});
  }
}

// x / step = i + 0.5 goes to the even neighbour, and the clamp sets in at the ends.
TEST(Int8Gemm, TiesGoToEven) {
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    GemmProblem p = blank_gemm(width, {{263, 1, 1}, in, Dtype::s32});
    p.step = 0.25f;
    p.weight[0] = 1;
    std::vector<std::int32_t> sums;
    for (int i = -131; i <= 131; ++i) {
      const float value = (static_cast<float>(i) + 0.5f) * 0.25f;
      write_float(p.x.data() + (i + 131) * p.x_stride(), in, 0, value);
      if (in != Dtype::bf16 || std::abs(i) < 64) {  // eight bits hold the half only for small numbers
        ASSERT_EQ(read_float(p.x.data() + (i + 131) * p.x_stride(), in, 0), value);
        const int even = i % 2 == 0 ? i : i + 1;
        sums.push_back(even < -128 ? -128 : even > 127 ? 127 : even);
      } else {
        sums.push_back(p.activation(i + 131, 0));
      }
    }
    expect_every_kernel(p, sums);
  }
}

// 127 * a + b over all a and b: every accumulator from -16384 to 16256. The scales lay them across ties, subnormals
// and the overflow of the 16-bit types.
TEST(Int8Gemm, StoresRoundToEvenInEveryDtype) {
  for (const Dtype out : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const float scale : {1.0f, -0.25f, 3.9f, 8.0f, 0x1p-26f, 0x1.8p-30f, 0x1p-140f, 0x1p+114f, 1e34f}) {
      GemmProblem p = blank_gemm(width, {{1, 65536, 2}, Dtype::s8, out});
      p.scale = scale;
      p.x = {127, 1};
      for (std::size_t i = 0; i < 65536; ++i) {
        p.weight[2 * i] = static_cast<unsigned char>(i >> 8);
        p.weight[2 * i + 1] = static_cast<unsigned char>(i);
      }
      expect_every_kernel(p);
    }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Int8, GemmRows, testing::Values(width), name_of);
INSTANTIATE_TEST_SUITE_P(Int8, GemmRefusals, testing::Values(width), name_of);

}  // namespace bie::kernels::test
