// Every kernel of the three GEMM tables computes the formula: shapes, dtypes, strides, layout of the weights, threads.
#include <thread>

#include "every_kernel.h"
#include "formulas.h"
#include "gemm_sweep.h"
#include "thread_watch.h"

namespace bie::kernels::test {

TEST_P(GemmRows, EveryMixOfSmallOddShapes) {
  ReplayableRng rng;
  for (const std::int64_t m : {0, 1, 2, 3, 5, 6, 7, 8, 10, 31})
    for (const std::int64_t n : {0, 1, 7, 15, 17, 33, 63, 65, 129})
      for (const std::int64_t k : {0, 1, 3, 7, 31, 33, 63, 65, 127, 129})
        for (const Dtype in : inputs()) {
          GemmCase c = drawn_case({m, n, k}, rng);
          c.in = in;
          expect_every_kernel(random_gemm(GetParam(), c, rng));
          if (HasFailure()) return;
        }
}

TEST_P(GemmRows, RandomLargerShapes) {
  ReplayableRng rng;
  const std::int64_t sizes[] = {1,  4,  8,   16,  31,  32,  33,  63,  64,  65, 95,
                                96, 97, 127, 128, 129, 255, 257, 300, 511, 513};
  for (int done = 0; done < 150;) {
    const GemmShape shape = {rng.one_of(sizes), rng.one_of(sizes), rng.one_of(sizes)};
    if (shape.m * shape.n * shape.k > 1000000) continue;
    expect_every_kernel(random_gemm(GetParam(), drawn_case(shape, rng), rng));
    if (HasFailure()) return;
    ++done;
  }
}

TEST_P(GemmRows, TallFlatAndDeepShapes) {
  ReplayableRng rng;
  const GemmShape shapes[] = {{1, 300, 1000}, {1, 64, 4097},   {2, 3, 4097},   {13, 17, 2049}, {200, 1, 65},
                              {97, 65, 33},   {1000, 3, 5},    {3, 1000, 5},   {1, 1, 100001}, {193, 129, 17},
                              {5, 130, 992},  {4, 16, 1025},   {9, 65, 70},    {11, 113, 50},  {12, 200, 33},
                              {8, 192, 2100}, {11, 130, 4200}, {7, 130, 16500}};
  for (const GemmShape& shape : shapes)
    for (const Dtype in : inputs()) {
      GemmCase c = drawn_case(shape, rng);
      c.in = in;
      expect_every_kernel(random_gemm(GetParam(), c, rng));
      if (HasFailure()) return;
    }
}

TEST_P(GemmRows, EveryMixOfDtypesBiasAndStrides) {
  ReplayableRng rng;
  for (const Dtype in : inputs())
    for (const Dtype out : every_output)
      for (const bool with_bias : {false, true})
        for (const std::int64_t gap : {0, 3})
          for (const GemmShape& shape : {GemmShape{7, 77, 83}, GemmShape{2, 9, 21}}) {
            expect_every_kernel(random_gemm(GetParam(), {shape, in, out, with_bias, gap, gap}, rng));
            if (HasFailure()) return;
          }
}

// A weight that is alone in being different is found by its products alone: row d of the activations holds digit d of
// the feature's number, so a weight that lands in another place, or in two, shows.
TEST_P(GemmRows, OneWeightFeedsOneOutputFromOneFeature) {
  const GemmWidth& width = GetParam();
  const bool bits = width.code == Dtype::bits;
  const std::int64_t m = bits ? 7 : 3, n = 67, k = 75;
  GemmProblem p = blank_gemm(width, {{m, n, k}, width.code});
  const auto digit = [bits](std::int64_t row, std::int64_t i) {
    if (bits) return (i >> row) & 1 ? 1 : -1;
    return static_cast<int>(1 + (row == 0 ? i : row == 1 ? i / 7 : i / 49) % 7);
  };
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t i = 0; i < k; ++i) write_code(p.x.data() + row * p.x_stride(), width.code, i, digit(row, i));
  std::vector<std::int32_t> without(static_cast<std::size_t>(m));  // an empty weight row is all -1 in bits, else all 0
  for (std::int64_t row = 0; row < m && bits; ++row)
    for (std::int64_t i = 0; i < k; ++i) without[static_cast<std::size_t>(row)] -= digit(row, i);
  for (std::int64_t o = 0; o < n; ++o)
    for (std::int64_t i = o % 5; i < k; i += 1 + (o * 3) % 4) {
      unsigned char* weight_row = p.weight.data() + o * row_bytes(width.code, k);
      const int value = bits ? 1 : -5;
      write_code(weight_row, width.code, i, value);
      std::vector<std::int32_t> sums(static_cast<std::size_t>(m * n));
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t column = 0; column < n; ++column)
          sums[static_cast<std::size_t>(row * n + column)] =
              without[static_cast<std::size_t>(row)] + (column == o ? (bits ? 2 : value) * digit(row, i) : 0);
      expect_every_kernel(p, sums);
      if (HasFailure()) {
        ADD_FAILURE() << "the weight of output " << o << ", feature " << i;
        return;
      }
      write_code(weight_row, width.code, i, bits ? -1 : 0);
    }
}

TEST_P(GemmRows, PadBitsOfWeightsAndCodesAreIgnored) {
  ReplayableRng rng;
  const GemmWidth& width = GetParam();
  for (const std::int64_t k : {1, 3, 5, 13, 31, 33, 65, 129}) {
    const std::int64_t room = width.code == Dtype::bits ? 8 : width.code == Dtype::s4 ? 2 : 1;
    GemmProblem p = random_gemm(width, {{5, 19, k}, width.code}, rng);
    const std::vector<std::int32_t> sums = expected_sums(p);
    for (const int pad : {-1, 0, 1}) {
      for (std::int64_t i = k; i % room != 0; ++i) {
        for (std::int64_t row = 0; row < 5; ++row) write_code(p.x.data() + row * p.x_stride(), width.code, i, pad);
        for (std::int64_t o = 0; o < 19; ++o)
          write_code(p.weight.data() + o * row_bytes(width.code, k), width.code, i, pad);
      }
      expect_every_kernel(p, sums);
      if (HasFailure()) return;
    }
  }
}

TEST_P(GemmRows, BiasAndStepAreIgnoredForCodes) {
  ReplayableRng rng;
  GemmProblem p = random_gemm(GetParam(), {{7, 35, 45}, GetParam().code}, rng);
  const std::vector<std::int32_t> sums = expected_sums(p);
  p.c.with_bias = true;
  p.bias.assign(p.bias.size(), std::numeric_limits<float>::quiet_NaN());
  for (const float step :
       {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    p.step = step;
    expect_every_kernel(p, sums);
  }
}

// A fresh thread has no workspace yet, and empty vectors hand out null pointers.
TEST_P(GemmRows, EmptySizesOnAFreshThread) {
  ReplayableRng rng;
  for (const GemmShape& shape : {GemmShape{3, 5, 0}, GemmShape{0, 5, 9}, GemmShape{3, 0, 9}, GemmShape{0, 0, 0}})
    for (const Dtype in : inputs()) {
      const GemmProblem p = random_gemm(GetParam(), {shape, in, Dtype::f32}, rng);
      std::thread([&p] { expect_every_kernel(p); }).join();
    }
}

TEST_P(GemmRows, ThreadsDoNotShowInTheResult) {
  ReplayableRng rng;
  for (const GemmShape& shape : {GemmShape{200, 200, 300}, GemmShape{1, 700, 2000}}) {
    const GemmProblem p = random_gemm(GetParam(), {shape, Dtype::f32, Dtype::f32, true, 1, 1}, rng);
    const std::vector<std::int32_t> sums = expected_sums(p);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for_every_kernel(GetParam().table(), [&](const GemmKernel& kernel) {
        if (kernel.isa != Isa::reference) expect_kernel(kernel, p, sums, pool.parallel());
      });
      if (HasFailure()) return;
    }
  }
}

TEST_P(GemmRows, ABigProblemUsesBothThreads) {
  ReplayableRng rng;
  // The binary tiles are so fast that it takes 2^26 products to be worth two threads.
  const GemmShape shape = GetParam().code == Dtype::bits ? GemmShape{384, 384, 1024} : GemmShape{192, 256, 512};
  const GemmProblem p = random_gemm(GetParam(), {shape, Dtype::f32, Dtype::f32}, rng);
  const std::vector<std::int32_t> sums = expected_sums(p);
  for_every_kernel(GetParam().table(), [&](const GemmKernel& kernel) {
    if (kernel.isa == Isa::reference) return;  // it runs where it is called
    ThreadPool pool(2);
    ThreadWatch watch(pool.parallel());
    expect_kernel(kernel, p, sums, watch.parallel());
    EXPECT_EQ(watch.threads_of_loops(), std::vector<std::size_t>(3, 2)) << "loops: weights, activations, products";
  });
}

TEST_P(GemmRows, TwoCallersAtOnce) {
  ReplayableRng rng;
  const GemmProblem small = random_gemm(GetParam(), {{9, 70, 129}, Dtype::f32, Dtype::s32}, rng);
  const GemmProblem large = random_gemm(GetParam(), {{40, 33, 257}, Dtype::bf16, Dtype::s32}, rng);
  const std::vector<std::int32_t> small_sums = expected_sums(small), large_sums = expected_sums(large);
  const auto repeat = [](const GemmProblem& p, const std::vector<std::int32_t>& sums) {
    for (int i = 0; i < 10; ++i) expect_every_kernel(p, sums);
  };
  std::thread other([&] { repeat(large, large_sums); });
  repeat(small, small_sums);
  other.join();
}

}  // namespace bie::kernels::test
