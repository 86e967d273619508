// A step of codes whose place is kept: every kernel with the same bits, and each rule against float64.
#include "bie/kernels/code_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "code_step_case.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

TEST(CodeStep, EveryKernelStepsAlikeOnAnyThreads) {
  for_cases([](const CodeStepCase& c) {
    CodeStepCase wanted = c;
    ASSERT_EQ(wanted.step(code_step_table().back(), serial()), Status::ok);
    for_every_pool([&](const Parallel& parallel) {
      for_every_kernel(code_step_table(), [&](const CodeStepKernel& kernel) {
        CodeStepCase found = c;
        ASSERT_EQ(found.step(kernel, parallel), Status::ok);
        expect_same(found, wanted);
      });
    });
  });
}

TEST(CodeStep, EachRuleIsTheFormula) {
  for_cases([](const CodeStepCase& c) {
    CodeStepCase after = c;
    ASSERT_EQ(after.step(*code_step_table().begin(), serial()), Status::ok);
    const double unit = c.rest.empty() ? 1 : 256, top = c.top * unit;
    const double low = c.rest.empty() ? 0 : -128, high = c.rest.empty() ? top : top + 127;
    std::vector<double> sums(static_cast<std::size_t>(c.groups() * c.n), 0), sizes = sums;
    for (std::int64_t i = 0; i < c.k; ++i)
      for (std::int64_t j = 0; j < c.n; ++j) {
        const double g = c.grad.get(i * c.n + j);
        const double l = 0.9 * c.first(i, j) + 0.1 * g, m = 0.99 * c.second(i, j) + 0.01 * g * g;
        const double u = l / (std::sqrt(m) + 1e-6), place = c.place(i, j);
        const double moved = place - unit * 0.01 * u / c.scale(i, j) - 0.01 * (place - unit * c.zero(i, j));
        const double room = 1 + 1e-4 * std::fabs(moved - place) + 1e-3 * unit / 256;
        ASSERT_NEAR(after.place(i, j), std::clamp(moved, low, high), room) << i << ", " << j;
        if (c.small) {  // the codes around a value are at most 4 / top of the largest apart
          const double most_l = after.largest[static_cast<std::size_t>(i * moment_blocks(c.n) + j / moment_block)];
          ASSERT_LE(std::fabs(l), most_l * (1 + 1e-5) + 1e-6);
          ASSERT_NEAR(after.first(i, j), l, 4 * most_l / 127 + 1e-6);
          ASSERT_TRUE(after.second(i, j) > 0 || m < 1e-30);
          ASSERT_NEAR(
              std::pow(after.second(i, j), 0.25), std::pow(m, 0.25),
              std::pow(after.largest[static_cast<std::size_t>((c.k + i) * moment_blocks(c.n) + j / moment_block)],
                       0.25) /
                  254);
        } else {
          ASSERT_NEAR(after.first(i, j), l, 1e-6);
          ASSERT_NEAR(after.second(i, j), m, 1e-6);
        }
        const auto at = static_cast<std::size_t>(i / c.group * c.n + j);
        sums[at] += g * (c.code(i, j) - c.zero(i, j));
        sizes[at] += std::fabs(g) * (c.code(i, j) + std::fabs(c.zero(i, j)));
      }
    for (std::size_t at = 0; at < sums.size(); ++at) {
      const auto index = static_cast<std::int64_t>(at);
      const double s = c.scales.get(index), kept = after.scales.get(index);
      if (c.scale_l.empty()) {
        ASSERT_EQ(kept, s);
        continue;
      }
      const double l = 0.9 * c.scale_l[at] + 0.1 * sums[at], m = 0.99 * c.scale_m[at] + 0.01 * sums[at] * sums[at];
      ASSERT_NEAR(after.scale_l[at], l, 1e-5 * (1 + sizes[at]));
      const double eps = c.scale_dtype == Dtype::f32 ? 1e-5 : c.scale_dtype == Dtype::f16 ? 0x1p-10 : 0x1p-7;
      const double change = std::clamp(0.02 * l / (std::sqrt(m) + 1e-6), -0.5, 0.5);
      ASSERT_NEAR(kept, s - std::fabs(s) * change, 1.5 * std::fabs(s) * (eps + 1e-4));
      if (c.offset != Offset::value) continue;
      const double z = c.float_zeros.get(index);
      ASSERT_NEAR(after.float_zeros.get(index), z / s * kept, 1.5 * std::fabs(z) * (eps + 1e-4) + 1e-7);
    }
  });
}

TEST(CodeStep, PlacesAndMomentsHaveNoBias) {
  ReplayableRng rng;
  CodeStepCase c = some_step(2, Offset::zero, true, true, true, rng);
  while (c.k * c.n < 40 || c.k * c.n > 1000) c = some_step(2, Offset::zero, true, true, true, rng);
  std::fill(c.rest.begin(), c.rest.end(), std::int8_t{0});  // places that no clamp touches
  c.rate = 0.0001f;
  c.adam.decay = 0;
  constexpr int runs = 2000;
  double place = 0, l = 0, m = 0, wanted_place = 0, wanted_l = 0, wanted_m = 0;
  for (int run = 0; run < runs; ++run) {
    CodeStepCase one = c;
    one.random = static_cast<std::uint64_t>(run) * 7919 + 1;
    ASSERT_EQ(one.step(*code_step_table().begin(), serial()), Status::ok);
    place += one.place(0, 0);
    l += one.first(0, 0);
    m += one.second(0, 0);
  }
  wanted_l = 0.9 * c.first(0, 0) + 0.1 * static_cast<double>(c.grad.get(0));
  wanted_m = 0.99 * c.second(0, 0) + 0.01 * std::pow(static_cast<double>(c.grad.get(0)), 2);
  wanted_place = c.place(0, 0) - 256 * 0.0001 * wanted_l / (std::sqrt(wanted_m) + 1e-6) / c.scale(0, 0);
  EXPECT_NEAR(place / runs, wanted_place, 0.06);
  EXPECT_NEAR(l / runs, wanted_l, 0.002);
  EXPECT_NEAR(m / runs, wanted_m, 0.002);
}

TEST(CodeStep, GradientsThatAreNotFiniteAndScalesOfZeroMoveNothing) {
  ReplayableRng rng;
  for (const bool small : {false, true}) {
    CodeStepCase c = some_step(4, Offset::zero, true, small, true, rng);
    c.scale_dtype = Dtype::f32;
    c.scales = random_elements(Dtype::f32, c.groups() * c.n, 0, rng);
    for (std::int64_t i = 0; i < c.groups() * c.n; ++i) c.scales.set(i, 0);
    for (std::int64_t i = 0; i < c.k * c.n; ++i) c.grad.set(i, i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : 1e30f);
    c.adam.decay = 0;
    for_every_kernel(code_step_table(), [&](const CodeStepKernel& kernel) {
      CodeStepCase after = c;
      ASSERT_EQ(after.step(kernel, serial()), Status::ok);
      ASSERT_EQ(after.words, c.words);
      ASSERT_EQ(after.rest, c.rest);
      ASSERT_EQ(after.scales.bytes, c.scales.bytes);
      for (std::int64_t i = 0; i < c.k; ++i)
        for (std::int64_t j = 0; j < c.n; ++j) ASSERT_TRUE(std::isfinite(after.first(i, j) + after.second(i, j)));
    });
  }
}

TEST(CodeStep, WrongArguments) {
  ReplayableRng rng;
  const CodeStepCase good = some_step(4, Offset::zero, true, true, true, rng);
  for_every_kernel(code_step_table(), [&](const CodeStepKernel& kernel) {
    const auto status = [&](auto change) {
      CodeStepCase c = good;
      change(c);
      return c.step(kernel, serial());
    };
    EXPECT_EQ(status([](CodeStepCase& c) { c.bits = 7; }), Status::bad_shape);
    EXPECT_EQ(status([](CodeStepCase& c) { c.top = 16; }), Status::bad_shape);
    EXPECT_EQ(status([](CodeStepCase& c) { c.group = 0; }), Status::bad_shape);
    EXPECT_EQ(status([](CodeStepCase& c) { c.k = -1; }), Status::bad_shape);
    EXPECT_EQ(status([](CodeStepCase& c) { c.scale_dtype = Dtype::s8; }), Status::bad_dtype);
    EXPECT_EQ(status([](CodeStepCase& c) { c.grad_dtype = Dtype::s32; }), Status::bad_dtype);
    EXPECT_EQ(status([](CodeStepCase& c) { c.n = 0; }), Status::ok);
  });
}

}  // namespace
}  // namespace bie::kernels::test
