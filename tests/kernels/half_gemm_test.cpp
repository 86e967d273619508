// Products with weights of 16-bit floats: every kernel has the bits of float_gemm over the same numbers.
#include "bie/kernels/half_gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "bie/kernels/float_gemm.h"
#include "elements.h"
#include "every_kernel.h"
#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels::test {
namespace {

constexpr std::pair<Dtype, Table<HalfGemmKernel> (*)()> tables[] = {{Dtype::f16, f16_gemm_table},
                                                                    {Dtype::bf16, bf16_gemm_table}};

/// W [n, k] of a dtype, and what float_gemm computes of the same numbers.
struct Case {
  std::int64_t m, n, k;
  Elements x, w, bias;

  Case(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, Dtype dtype, ReplayableRng& rng)
      : m(rows),
        n(outputs),
        k(inputs),
        x(random_elements(Dtype::f32, m * k, 2, rng)),
        w(random_elements(dtype, n * k, 2, rng)),
        bias(random_elements(Dtype::f32, n, 2, rng)) {}

  std::vector<float> wanted(bool biased) const {
    std::vector<float> wide;
    for (std::int64_t i = 0; i < n * k; ++i) wide.push_back(w.get(i));
    const FloatGemmKernel& floats = float_gemm_table().back();
    const PackedMemory packed(floats.packed_bytes(n, k));
    floats.prepack(wide.data(), n, k, static_cast<float*>(packed.get()));
    std::vector<float> y(static_cast<std::size_t>(m * n));
    EXPECT_EQ(floats.run({m, n, k}, x.floats(), static_cast<const float*>(packed.get()),
                         biased ? bias.floats() : nullptr, y.data(), serial()),
              Status::ok);
    return y;
  }

  /// The weight begins at an odd address, as nothing aligns it.
  std::vector<float> found(const HalfGemmKernel& kernel, bool biased, const Parallel& parallel) const {
    std::vector<char> bytes(static_cast<std::size_t>(2 * n * k) + 1);
    if (n * k > 0) std::memcpy(bytes.data() + 1, w.bytes.data(), static_cast<std::size_t>(2 * n * k));
    const PackedMemory packed(kernel.packed_bytes(n, k));
    kernel.prepack(bytes.data() + 1, n, k, packed.get(), parallel);
    std::vector<float> y(static_cast<std::size_t>(m * n) + 1, 77.0f);
    EXPECT_EQ(kernel.run({m, n, k}, x.floats(), packed.get(), biased ? bias.floats() : nullptr, y.data(), parallel),
              Status::ok);
    EXPECT_EQ(y.back(), 77.0f);
    y.pop_back();
    return y;
  }
};

void expect_same(const std::vector<float>& found, const std::vector<float>& wanted, const char* name) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(bits_from_float(found[i]) == bits_from_float(wanted[i]) ||
                (std::isnan(found[i]) && std::isnan(wanted[i])))
        << name << ", " << i << ": " << found[i] << ", " << wanted[i];
}

TEST(HalfGemm, EverySizeHasTheBitsOfFloats) {
  ReplayableRng rng;
  for (const auto& [dtype, table] : tables)
    for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1},
                                                                          {270, 35, 530},
                                                                          {13, 35, 530},
                                                                          {1, 130, 65},
                                                                          {2, 33, 31},
                                                                          {3, 64, 100},
                                                                          {4, 49, 5},
                                                                          {5, 17, 129},
                                                                          {6, 40, 63},
                                                                          {7, 16, 64},
                                                                          {11, 31, 7},
                                                                          {29, 65, 33},
                                                                          {0, 3, 4},
                                                                          {2, 3, 0},
                                                                          {2, 0, 3}}) {
      const Case c(m, n, k, dtype, rng);
      for (const bool biased : {false, true}) {
        const std::vector<float> wanted = c.wanted(biased);
        for_every_pool([&, kernels = table()](const Parallel& parallel) {
          for_every_kernel(kernels, [&](const HalfGemmKernel& kernel) {
            expect_same(c.found(kernel, biased, parallel), wanted, kernel.name);
          });
        });
        if (HasFailure()) return;
      }
    }
}

TEST(HalfGemm, EverySixteenBitsAreTheNumberTheyStandFor) {
  // One input of 1: an output is its weight, + 0.
  ReplayableRng rng;
  for (const auto& [dtype, table] : tables) {
    Case c(1, 1 << 16, 1, dtype, rng);
    c.x.set(0, 1);
    std::vector<std::uint16_t> every;
    std::vector<float> wanted;
    for (int i = 0; i < 1 << 16; ++i) {
      every.push_back(static_cast<std::uint16_t>(i));
      const float w = dtype == Dtype::f16 ? float_from_f16(every.back()) : float_from_bf16(every.back());
      wanted.push_back(w + 0.0f);
    }
    for_every_kernel(table(), [&](const HalfGemmKernel& kernel) {
      const PackedMemory packed(kernel.packed_bytes(c.n, 1));
      kernel.prepack(every.data(), c.n, 1, packed.get(), serial());
      std::vector<float> y(every.size());
      ASSERT_EQ(kernel.run({1, c.n, 1}, c.x.floats(), packed.get(), nullptr, y.data(), serial()), Status::ok);
      expect_same(y, wanted, kernel.name);
    });
  }
}

TEST(HalfGemm, NanAndInfinityReachTheirOutputs) {
  ReplayableRng rng;
  for (const auto& [dtype, table] : tables) {
    Case c(3, 20, 40, dtype, rng);
    c.x.set(40 + 7, std::numeric_limits<float>::quiet_NaN());
    c.w.set(5 * 40 + 3, std::numeric_limits<float>::infinity());
    const std::vector<float> wanted = c.wanted(true);
    for_every_kernel(table(), [&](const HalfGemmKernel& kernel) {
      const std::vector<float> y = c.found(kernel, true, serial());
      expect_same(y, wanted, kernel.name);
      for (std::size_t i = 0; i < y.size(); ++i)
        ASSERT_EQ(std::isfinite(y[i]), i / 20 != 1 && i % 20 != 5) << kernel.name << ", " << i;
    });
  }
}

TEST(HalfGemm, SizesBelowZero) {
  for (const auto& [dtype, table] : tables)
    for_every_kernel(table(), [](const HalfGemmKernel& kernel) {
      EXPECT_EQ(kernel.run({-1, 2, 2}, nullptr, nullptr, nullptr, nullptr, serial()), Status::bad_shape);
      EXPECT_EQ(kernel.run({1, 2, -2}, nullptr, nullptr, nullptr, nullptr, serial()), Status::bad_shape);
    });
}

}  // namespace
}  // namespace bie::kernels::test
