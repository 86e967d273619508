// Weight-only products of activations of 8 bits on CUDA: exact integers where float32 holds the result, else float64.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "bie/kernels/cuda/weight_only.h"
#include "bie/kernels/weight_only_q8.h"
#include "tests/kernels/cuda/device_weight.h"

namespace bie::kernels::test {
namespace {

using cuda::WeightOnlyPlan;

/// Activations and what belongs to a product of them.
struct Case {
  Elements x;
  std::vector<float> factor, bias;
  std::int64_t m;

  Case(Dtype dtype, std::int64_t rows, const WeightCase& w, bool extras, ReplayableRng& rng)
      : x(random_elements(dtype, rows * w.k, 1, rng)), m(rows) {
    for (std::int64_t i = 0; extras && i < w.k; ++i) factor.push_back(static_cast<float>(rng.between(-200, 200)) / 128);
    for (std::int64_t j = 0; extras && j < w.n; ++j) bias.push_back(static_cast<float>(rng.between(-200, 200)) / 128);
  }
};

std::vector<float> product(const WeightCase& w, const Arranged& arranged, const Case& c) {
  const DeviceBytes floats(c.x.bytes), factors(c.factor), biases(c.bias);
  const FloatRows rows = {floats.get(), c.x.dtype, row_bytes(c.x.dtype, w.k),
                          c.factor.empty() ? nullptr : factors.as<float>()};
  const DeviceBytes workspace(static_cast<std::size_t>(cuda::weight_only_workspace(arranged.plan, c.m, rows)));
  const auto bytes = static_cast<std::size_t>(4 * c.m * w.n);
  GuardedBytes y(bytes);
  run_guarded(&y, bytes, [&](unsigned char* to) {
    ASSERT_EQ(cuda::weight_only_gemm(arranged.plan, c.m, rows, arranged.panels->get(),
                                     {to, Dtype::f32, 4 * w.n, c.bias.empty() ? nullptr : biases.as<float>()},
                                     workspace.get(), default_queue),
              Status::ok)
        << cuda::last_error();
  });
  std::vector<float> values(static_cast<std::size_t>(c.m * w.n));
  const std::vector<unsigned char> found = y.bytes();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = read_float(found.data(), Dtype::f32, static_cast<std::int64_t>(i));
  return values;
}

/// A row's codes and step sizes, as docs/spec/weight-only.md makes them.
struct Quantised {
  std::vector<int> codes;   ///< of the packed rows
  std::vector<float> step;  ///< of the groups

  Quantised(const WeightCase& w, const Case& c, std::int64_t row)
      : codes(static_cast<std::size_t>(w.k)), step(static_cast<std::size_t>(w.groups)) {
    std::vector<float> x(codes.size()), largest(step.size()), inverse(step.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::int64_t input = w.input(static_cast<std::int64_t>(i));
      x[i] = c.x.get(row * w.k + input);
      if (!c.factor.empty()) x[i] *= c.factor[static_cast<std::size_t>(input)];
      float& of_group = largest[static_cast<std::size_t>(w.group_of[i])];
      if (!(std::fabs(x[i]) <= of_group)) of_group = std::isnan(of_group) ? of_group : std::fabs(x[i]);
    }
    for (std::size_t g = 0; g < step.size(); ++g) {
      const float a = largest[g];
      if (!std::isfinite(a))
        step[g] = std::numeric_limits<float>::quiet_NaN();
      else if (a >= 0x1p-100f)
        step[g] = f32(static_cast<double>(a) / 127), inverse[g] = f32(127 / static_cast<double>(a));
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto g = static_cast<std::size_t>(w.group_of[i]);
      if (inverse[g] != 0)
        codes[i] = static_cast<int>(std::nearbyint(f32(static_cast<double>(x[i]) * static_cast<double>(inverse[g]))));
    }
  }
};

void expect_product(const WeightCase& w, const Arranged& arranged, const Case& c) {
  const std::vector<float> found = product(w, arranged, c);
  if (testing::Test::HasFatalFailure()) return;
  const std::int64_t every = checked_every(c.m, w);
  for (std::int64_t r = 0; r < c.m; ++r) {
    const Quantised x(w, c, r);
    for (std::int64_t j = r % every; j < w.n; j += every) {
      double sum = c.bias.empty() ? 0 : static_cast<double>(c.bias[static_cast<std::size_t>(j)]), size = std::fabs(sum);
      for (std::int64_t i = 0; i < w.k; ++i) {
        const auto g = static_cast<std::size_t>(w.group_of[static_cast<std::size_t>(i)]);
        const double v = x.codes[static_cast<std::size_t>(i)] * static_cast<double>(x.step[g]);
        const double s = static_cast<double>(w.scales.get(w.group_of[static_cast<std::size_t>(i)] * w.n + j));
        sum += v * w.value(i, j);
        size += std::fabs(v) * (std::fabs(w.value(i, j)) + std::fabs(s) * (1 << w.bits_of_row(i)));
      }
      const double value = static_cast<double>(found[static_cast<std::size_t>(r * w.n + j)]);
      if (std::isnan(sum))
        ASSERT_TRUE(std::isnan(value)) << "row " << r << ", output " << j;
      else
        ASSERT_NEAR(value, sum, size * 0x1p-21 + 1e-30)
            << w.k << ", " << w.n << ", " << c.m << ": row " << r << ", output " << j;
    }
  }
}

constexpr Dtype float_dtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
constexpr Offset offsets[] = {Offset::none, Offset::value, Offset::zero};
constexpr std::int64_t row_counts[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 63, 64, 65, 128, 129, 200};

TEST(CudaWeightOnlyInt8, SmallOddShapesOfEveryWidth) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8})
    for (const Offset offset : offsets)
      for (int round = 0; round < 4; ++round) {
        const std::int64_t k = rng.one_of({1, 7, 31, 32, 33, 96, 257}), group = rng.one_of({32, 64, 96, 128, 300});
        const WeightCase w({{bits, k}}, rng.one_of({1, 15, 16, 17, 65, 130}), even_groups(k, group),
                           rng.one_of(float_dtypes), offset, rng);
        const DeviceWeight device(w);
        expect_product(w, ordered(device, group, true),
                       Case(rng.one_of(float_dtypes), rng.one_of(row_counts), w, rng.coin(), rng));
        if (HasFatalFailure()) return;
      }
}

TEST(CudaWeightOnlyInt8, EveryNumberOfRowsAndTile) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8})
    for (const std::int64_t m : row_counts) {
      const std::int64_t k = rng.one_of({1024, 1056, 2080}), group = rng.one_of({32, 64, 96, 128, 160, 4096});
      const WeightCase w({{bits, k}}, rng.one_of({72, 200}), even_groups(k, group), Dtype::f16, rng.one_of(offsets),
                         rng);
      const DeviceWeight device(w);
      expect_product(w, ordered(device, group, true), Case(rng.one_of(float_dtypes), m, w, rng.coin(), rng));
      if (HasFatalFailure()) return;
    }
}

// More blocks of 64 outputs than an H100 has places for.
TEST(CudaWeightOnlyInt8, ManyOutputs) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8}) {
    const std::int64_t k = rng.one_of({96, 1056}), group = rng.one_of({32, 96, 128, 4096});
    const WeightCase w({{bits, k}}, 8500, even_groups(k, group), Dtype::f16, rng.one_of(offsets), rng);
    const DeviceWeight device(w);
    expect_product(w, ordered(device, group, true), Case(Dtype::f16, rng.between(65, 200), w, rng.coin(), rng));
    if (HasFatalFailure()) return;
  }
}

TEST(CudaWeightOnlyInt8, SmallOddGroupsInSlots) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8})
    for (const std::int64_t k : {1, 40, 130})
      for (const std::int64_t m : {1, 7, 40}) {
        WeightCase w({{bits, k}}, 70, mixed_groups(k, 5, rng), Dtype::f16, rng.one_of(offsets), rng);
        if (rng.coin()) w.permute(rng);
        const DeviceWeight device(w);
        expect_product(w, in_slots(device, true), Case(rng.one_of(float_dtypes), m, w, rng.coin(), rng));
        if (HasFatalFailure()) return;
      }
}

// One large step size in a run of smaller ones, a row of zeros, one of tiny numbers, NaN and infinity: each stays in
// its row.
TEST(CudaWeightOnlyInt8, ZerosTinyAndEndlessRows) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const std::int64_t m : {4, 7, 40}) {
    const std::int64_t k = 320;
    const WeightCase w({{4, k}}, 40, even_groups(k, 64), Dtype::f32, Offset::zero, rng);
    const DeviceWeight device(w);
    Case c(Dtype::f32, m, w, false, rng);
    for (std::int64_t i = 0; i < k; ++i) c.x.set(i, 0), c.x.set(k + i, c.x.get(k + i) * 0x1p-120f);
    c.x.set(2 * k + 100, std::numeric_limits<float>::quiet_NaN());
    c.x.set(3 * k + 200, -std::numeric_limits<float>::infinity());
    expect_product(w, ordered(device, 64, true), c);
    if (HasFatalFailure()) return;
  }
}

// Step sizes and scales are powers of two and sums below 2^24, so that float32 holds every result.
TEST(CudaWeightOnlyInt8, IntegersAreExact) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8})
    for (const std::int64_t m : {1, 4, 8, 16, 32, 64, 128, 130}) {
      const std::int64_t k = 512, group = rng.one_of({32, 64, 128, 512});
      WeightCase w({{bits, k}}, 136, even_groups(k, group), Dtype::f16, rng.one_of({Offset::none, Offset::zero}), rng);
      for (std::int64_t i = 0; i < w.groups * w.n; ++i) w.scales.set(i, 1);
      Case c(Dtype::f16, m, w, false, rng);
      for (std::int64_t i = 0; i < m * k; ++i)
        c.x.set(i, i % 32 == 5 ? 127.0f : static_cast<float>(rng.between(-127, 127)));
      const DeviceWeight device(w);
      const std::vector<float> found = product(w, ordered(device, group, true), c);
      for (std::int64_t r = 0; r < m; ++r)
        for (std::int64_t j = 0; j < w.n; ++j) {
          std::int64_t sum = 0;
          for (std::int64_t i = 0; i < k; ++i)
            sum += static_cast<std::int64_t>(c.x.get(r * k + i)) * static_cast<std::int64_t>(w.value(i, j));
          ASSERT_EQ(found[static_cast<std::size_t>(r * w.n + j)], static_cast<float>(sum))
              << bits << " bits, " << m << " rows: row " << r << ", output " << j;
        }
    }
}

TEST(CudaWeightOnlyInt8, WrongArguments) {
  BIE_NEEDS_WEIGHT_ONLY();
  WeightOnlyPlan plan = cuda::ordered_plan(most_q8_rows + 32, 16, most_q8_rows + 32, 4, Offset::none, Dtype::f16);
  plan.int8 = true;
  const FloatRows rows = {nullptr, Dtype::f16, 2 * plan.k, nullptr};
  const FloatResults results = {nullptr, Dtype::f32, 64, nullptr};
  EXPECT_EQ(cuda::weight_only_gemm(plan, 1, rows, nullptr, results, nullptr, default_queue), Status::too_deep);
  plan = cuda::ordered_plan(64, 16, 32, 4, Offset::none, Dtype::f16);
  plan.int8 = true;
  EXPECT_EQ(cuda::weight_only_open_panels(plan, nullptr, nullptr, Dtype::f16, default_queue), Status::bad_shape);
  EXPECT_EQ(cuda::weight_only_slot_rows(plan, 1, rows, nullptr, nullptr, Dtype::f16, default_queue), Status::bad_shape);
}

}  // namespace
}  // namespace bie::kernels::test
