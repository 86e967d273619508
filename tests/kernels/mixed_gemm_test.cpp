// Products of floats and whole numbers: float64's sums within float32's accuracy, the same bits whatever the threads.
#include "bie/kernels/mixed_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "elements.h"
#include "every_kernel.h"
#include "kernels/cpu/gemm/mixed_gemm.h"

#if defined(__x86_64__)
namespace bie::kernels::cpu::amx_emulated {
extern const MixedTile mixed_tile, mixed_tile_of_bf16;
}
#endif

namespace bie::kernels::test {
namespace {

/// The tile of AMX over emulated registers, for every shape.
Table<MixedGemmKernel> emulated_table() {
  static const MixedGemmKernel best_first[] = {
#if defined(__x86_64__)
    {"mixed_gemm_emulated", Isa::avx512, nullptr,
     [](const GemmShape& shape, const MixedGemmInput& in, float scale, float* y, const Parallel& parallel) {
       const bool narrow = in.a_dtype == Dtype::bf16;
       return cpu::run_mixed_gemm(narrow ? cpu::amx_emulated::mixed_tile_of_bf16 : cpu::amx_emulated::mixed_tile, shape,
                                  in, scale, y, parallel);
     }},
#endif
    mixed_gemm_table().back(),
  };
  return table_of(best_first);
}

struct Problem {
  GemmShape shape;
  bool transposed;
  Elements a, b;
  float scale;

  MixedGemmInput input() const {
    const std::int64_t row = transposed ? 1 : shape.k, column = transposed ? shape.m : 1;
    return {a.bytes.data(), a.dtype, row, column, b.bytes.data(), b.dtype};
  }
  float a_at(std::int64_t i, std::int64_t l) const { return a.get(transposed ? l * shape.m + i : i * shape.k + l); }
};

/// Sizes of a go over 30 powers of two; codes are those of one byte, or floats up to 256.
Problem random_problem(const GemmShape& shape, bool transposed, Dtype b_dtype, ReplayableRng& rng,
                       Dtype a_dtype = Dtype::f32) {
  Problem p = {shape, transposed, random_elements(a_dtype, shape.m * shape.k, 1, rng),
               Elements(b_dtype, shape.k * shape.n), static_cast<float>(rng.between(1, 1000)) * 0x1p-7f};
  for (std::int64_t i = 0; i < p.a.size(); ++i)
    p.a.set(i, std::ldexp(p.a.get(i), static_cast<int>(rng.between(-15, 15))));
  for (std::int64_t i = 0; i < p.b.size(); ++i)
    p.b.set(i, static_cast<float>(b_dtype == Dtype::s8 ? rng.between(-128, 127) : rng.between(-256, 256)));
  return p;
}

void expect_product(const MixedGemmKernel& kernel, const Problem& p) {
  if (kernel.accepts != nullptr && !kernel.accepts(p.shape)) return;
  const std::int64_t m = p.shape.m, n = p.shape.n, k = p.shape.k;
  std::vector<unsigned char> first;
  for_every_pool([&](const Parallel& parallel) {
    GuardedBytes y(static_cast<std::size_t>(m * n) * 4);
    ASSERT_EQ(kernel.run(p.shape, p.input(), p.scale, reinterpret_cast<float*>(y.data()), parallel), Status::ok);
    if (first.empty()) first = y.bytes();
    ASSERT_TRUE(same_bytes(first, y)) << "other bits on other threads";
  });
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        const double term = static_cast<double>(p.a_at(i, l)) * static_cast<double>(p.b.get(l * n + j));
        sum += term;
        size += std::fabs(term);
      }
      const double wanted = sum * static_cast<double>(p.scale);
      // A rounding for each of three parts of a term, and two for the scale.
      const double most = size * static_cast<double>(p.scale) * static_cast<double>(3 * k + 2) * 0x1p-24;
      const float found = read_float(first.data(), Dtype::f32, i * n + j);
      ASSERT_LE(std::fabs(static_cast<double>(found) - wanted), most)
          << found << " for " << wanted << " at " << i << ", " << j << " of " << m << " x " << n << " x " << k;
    }
}

class MixedGemm : public testing::TestWithParam<const char*> {
 protected:
  Table<MixedGemmKernel> table() const {
    return std::string(GetParam()) == "emulated" ? emulated_table() : mixed_gemm_table();
  }
};

TEST_P(MixedGemm, RandomShapes) {
  ReplayableRng rng;
  for (int i = 0; i < 60; ++i) {
    const GemmShape shape = {rng.between(1, 70), rng.between(1, 70), rng.between(1, 70)};
    const Problem p = random_problem(shape, rng.coin(), rng.one_of({Dtype::f32, Dtype::s8}), rng,
                                     rng.one_of({Dtype::f32, Dtype::bf16}));
    for_every_kernel(table(), [&](const MixedGemmKernel& kernel) { expect_product(kernel, p); });
    if (HasFailure()) return;
  }
}

/// Sections of 1024 rows, of 256 and of 1024 of k, blocks of rows that fill a cache.
TEST_P(MixedGemm, MoreThanIsTakenAtOnce) {
  ReplayableRng rng;
  for (const GemmShape& shape : {GemmShape{1041, 17, 33}, {17, 33, 1061}, {40, 16, 2100}, {355, 35, 1024}})
    for (const bool transposed : {false, true})
      for (const Dtype a_dtype : {Dtype::f32, Dtype::bf16}) {
        const Problem p = random_problem(shape, transposed, Dtype::s8, rng, a_dtype);
        for_every_kernel(table(), [&](const MixedGemmKernel& kernel) { expect_product(kernel, p); });
        if (HasFailure()) return;
      }
}

TEST_P(MixedGemm, NumbersOf24BitsLoseNone) {
  ReplayableRng rng;
  Problem p = random_problem({32, 32, 32}, false, Dtype::s8, rng);
  p.scale = 1;
  for (std::int64_t i = 0; i < p.a.size(); ++i) p.a.set(i, 0);
  for (std::int64_t i = 0; i < 32; ++i) p.a.set(i * 32 + i, static_cast<float>(rng.between(1 << 23, (1 << 24) - 1)));
  for (std::int64_t i = 0; i < p.b.size(); ++i) p.b.set(i, i % 2 == 0 ? 1 : -64);
  for_every_kernel(table(), [&](const MixedGemmKernel& kernel) {
    std::vector<float> y(32 * 32);
    ASSERT_EQ(kernel.run(p.shape, p.input(), 1, y.data(), serial()), Status::ok);
    for (std::int64_t i = 0; i < 32 * 32; ++i)
      ASSERT_EQ(y[static_cast<std::size_t>(i)], p.a_at(i / 32, i / 32) * p.b.get(i));
  });
}

TEST_P(MixedGemm, Bfloat16HasTheBitsOfItsFloats) {
  ReplayableRng rng;
  for (const bool transposed : {false, true}) {
    const GemmShape shape = {45, 67, 83};
    const Problem p = random_problem(shape, transposed, Dtype::s8, rng, Dtype::bf16);
    Problem wide = p;
    wide.a = Elements(Dtype::f32, p.a.size());
    for (std::int64_t i = 0; i < p.a.size(); ++i) wide.a.set(i, p.a.get(i));
    for_every_kernel(table(), [&](const MixedGemmKernel& kernel) {
      std::vector<float> y(45 * 67), wanted(45 * 67);
      ASSERT_EQ(kernel.run(shape, p.input(), p.scale, y.data(), serial()), Status::ok);
      ASSERT_EQ(kernel.run(shape, wide.input(), p.scale, wanted.data(), serial()), Status::ok);
      EXPECT_EQ(y, wanted);
    });
  }
}

TEST_P(MixedGemm, WhatIsNotFiniteStaysInItsRow) {
  ReplayableRng rng;
  for (const Dtype a_dtype : {Dtype::f32, Dtype::bf16})
    for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      Problem p = random_problem({20, 18, 40}, false, Dtype::s8, rng, a_dtype);
      p.a.set(3 * 40 + 7, odd);
      for (std::int64_t i = 0; i < p.b.size(); ++i)
        if (p.b.get(i) == 0) p.b.set(i, 1);
      for_every_kernel(table(), [&](const MixedGemmKernel& kernel) {
        std::vector<float> y(20 * 18);
        ASSERT_EQ(kernel.run(p.shape, p.input(), p.scale, y.data(), serial()), Status::ok);
        for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isfinite(y[i]), i / 18 != 3) << i;
      });
    }
}

TEST_P(MixedGemm, NothingToSum) {
  const float a = 0;
  const std::int8_t b = 0;
  for_every_kernel(table(), [&](const MixedGemmKernel& kernel) {
    std::vector<float> y(6, 7);
    ASSERT_EQ(kernel.run({2, 3, 0}, {&a, Dtype::f32, 0, 1, &b, Dtype::s8}, 2, y.data(), serial()), Status::ok);
    EXPECT_EQ(y, std::vector<float>(6, 0));
    ASSERT_EQ(kernel.run({0, 3, 5}, {&a, Dtype::f32, 5, 1, &b, Dtype::s8}, 2, nullptr, serial()), Status::ok);
    ASSERT_EQ(kernel.run({3, 0, 5}, {&a, Dtype::f32, 5, 1, &b, Dtype::s8}, 2, nullptr, serial()), Status::ok);
  });
}

TEST_P(MixedGemm, WrongArguments) {
  const float a[4] = {};
  const std::int8_t b[4] = {};
  for_every_kernel(table(), [&](const MixedGemmKernel& kernel) {
    float y[4] = {7, 7, 7, 7};
    for (const GemmShape& shape : {GemmShape{-1, 2, 2}, {2, -1, 2}, {2, 2, -1}})
      EXPECT_EQ(kernel.run(shape, {a, Dtype::f32, 2, 1, b, Dtype::s8}, 1, y, serial()), Status::bad_shape);
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::s4, Dtype::bits, Dtype::s32})
      EXPECT_EQ(kernel.run({2, 2, 2}, {a, Dtype::f32, 2, 1, b, dtype}, 1, y, serial()), Status::bad_dtype);
    for (const Dtype dtype : {Dtype::f16, Dtype::s8, Dtype::s4, Dtype::bits, Dtype::s32})
      EXPECT_EQ(kernel.run({2, 2, 2}, {a, dtype, 2, 1, b, Dtype::s8}, 1, y, serial()), Status::bad_dtype);
    for (const float value : y) EXPECT_EQ(value, 7);
  });
}

INSTANTIATE_TEST_SUITE_P(Tables, MixedGemm, testing::Values("table", "emulated"),
                         [](const auto& table) { return std::string(table.param); });

}  // namespace
}  // namespace bie::kernels::test
