// s4xs4: the common sweeps, the ends of the range at the greatest depth, ties.
#include "bie/kernels/int4_gemm.h"

#include "formulas.h"
#include "gemm_sweep.h"

namespace bie::kernels::test {
namespace {

constexpr GemmWidth width = {"s4xs4", Dtype::s4, -8, 7, max_k_s4, s4xs4_gemm_table};

TEST(Int4Gemm, EndsOfTheRangeAtGreatDepths) {
  const int ends[] = {-8, 7};
  for (const std::int64_t k : {std::int64_t{4097}, std::int64_t{1200000}, max_k_s4}) {
    GemmProblem p = blank_gemm(width, {{2, 2, k}, Dtype::s4, Dtype::s32});
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t end = 0; end < 2; ++end) {
        write_code(p.weight.data() + end * row_bytes(Dtype::s4, k), Dtype::s4, i, ends[end]);
        write_code(p.x.data() + end * p.x_stride(), Dtype::s4, i, ends[end]);
      }
    const std::int32_t depth = static_cast<std::int32_t>(k);
    expect_every_kernel(p, {64 * depth, -56 * depth, -56 * depth, 49 * depth});
  }
}

TEST(Int4Gemm, TiesGoToEven) {
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    GemmProblem p = blank_gemm(width, {{21, 1, 1}, in, Dtype::s32});
    p.step = 0.125f;
    p.weight[0] = 0x10;
    std::vector<std::int32_t> sums;
    for (int i = -10; i <= 10; ++i) {
      write_float(p.x.data() + (i + 10) * p.x_stride(), in, 0, (static_cast<float>(i) + 0.5f) * 0.125f);
      const int even = i % 2 == 0 ? i : i + 1;
      sums.push_back(even < -8 ? -8 : even > 7 ? 7 : even);
    }
    expect_every_kernel(p, sums);
  }
}

TEST(Int4Gemm, HugeValuesAreClamped) {
  GemmProblem p = blank_gemm(width, {{2, 1, 19}, Dtype::f32, Dtype::s32});
  p.step = 1e-40f;  // the quotient overflows
  p.weight.assign(p.weight.size(), 0x11);
  for (std::int64_t i = 0; i < 19; ++i) {
    write_float(p.x.data(), Dtype::f32, i, -3e38f);
    write_float(p.x.data() + p.x_stride(), Dtype::f32, i, 3e38f);
  }
  expect_every_kernel(p, {-8 * 19, 7 * 19});
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Int4, GemmRows, testing::Values(width), name_of);
INSTANTIATE_TEST_SUITE_P(Int4, GemmRefusals, testing::Values(width), name_of);

}  // namespace bie::kernels::test
