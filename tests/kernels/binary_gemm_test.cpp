// b1xb1: the common sweeps, and what only signs have.
#include "bie/kernels/binary_gemm.h"

#include <limits>

#include "formulas.h"
#include "gemm_sweep.h"

namespace bie::kernels::test {
namespace {

constexpr GemmWidth width = {"b1xb1", Dtype::bits, -1, 1, max_k_b1, b1xb1_gemm_table};

// Both zeros are +1, whether they come as such or as the sum of an activation and its negative.
TEST(BinaryGemm, ZerosOfBothSignsCountAsPlusOne) {
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const bool with_bias : {false, true}) {
      GemmProblem p = blank_gemm(width, {{2, 3, 37}, in, Dtype::s32, with_bias});
      p.weight.assign(p.weight.size(), 0xff);
      for (std::int64_t i = 0; i < 37; ++i) {
        write_float(p.x.data(), in, i, with_bias ? -2.5f : -0.0f);
        write_float(p.x.data() + p.x_stride(), in, i, with_bias ? 2.5f : 0.0f);
        p.bias[static_cast<std::size_t>(i)] = 2.5f;
      }
      expect_every_kernel(p, std::vector<std::int32_t>(6, 37));
    }
}

TEST(BinaryGemm, TheSmallestNegativeNumberIsMinusOne) {
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    GemmProblem p = blank_gemm(width, {{1, 1, 37}, in, Dtype::s32});
    p.weight.assign(p.weight.size(), 0xff);
    const float least = in == Dtype::f32 ? -0x1p-149f : in == Dtype::bf16 ? -0x1p-133f : -0x1p-24f;
    for (std::int64_t i = 0; i < 37; ++i) write_float(p.x.data(), in, i, least);
    expect_every_kernel(p, {-37});
  }
}

// All bits differ or none: every byte counter of a tile fills as far as it can.
TEST(BinaryGemm, LongRunsOfEqualAndOppositeSigns) {
  const std::int64_t k = (std::int64_t{1} << 20) + 5;
  GemmProblem p = blank_gemm(width, {{2, 2, k}, Dtype::bits, Dtype::s32});
  std::fill(p.x.begin() + p.x_stride(), p.x.end(), 0xff);
  std::fill(p.weight.begin() + row_bytes(Dtype::bits, k), p.weight.end(), 0xff);
  const std::int32_t all = static_cast<std::int32_t>(k);
  expect_every_kernel(p, {all, -all, -all, all});
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Binary, GemmRows, testing::Values(width), name_of);
INSTANTIATE_TEST_SUITE_P(Binary, GemmRefusals, testing::Values(width), name_of);

}  // namespace bie::kernels::test
