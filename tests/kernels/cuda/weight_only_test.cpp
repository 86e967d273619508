// Weight-only products on CUDA against float64, within a float32 sum's rounding; opened weights against the CPU's bits.
#include "bie/kernels/cuda/weight_only.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "bie/kernels/weight_values.h"
#include "kernels/arithmetic/float_bits.h"
#include "tests/kernels/cuda/device_weight.h"

namespace bie::kernels::test {
namespace {

using cuda::WeightOnlyPlan;

enum class Extras : std::uint8_t { none, bias, factor_and_bias };

void expect_product(const WeightCase& w, const Arranged& arranged, std::int64_t m, Dtype dtype, Extras extras,
                    ReplayableRng& rng) {
  const bool has_factor = extras == Extras::factor_and_bias, has_bias = extras != Extras::none;
  const Elements x = random_elements(dtype, m * w.k, 1, rng);
  std::vector<float> factor, bias;
  for (std::int64_t i = 0; has_factor && i < w.k; ++i)
    factor.push_back(static_cast<float>(rng.between(-200, 200)) / 128);
  for (std::int64_t j = 0; has_bias && j < w.n; ++j) bias.push_back(static_cast<float>(rng.between(-200, 200)) / 128);
  const DeviceBytes floats(x.bytes), factors(factor), biases(bias);
  const FloatRows rows = {floats.get(), dtype, row_bytes(dtype, w.k), has_factor ? factors.as<float>() : nullptr};
  const DeviceBytes workspace(static_cast<std::size_t>(cuda::weight_only_workspace(arranged.plan, m, rows)));
  GuardedBytes y(static_cast<std::size_t>(4 * m * w.n));
  run_guarded(&y, static_cast<std::size_t>(4 * m * w.n), [&](unsigned char* to) {
    ASSERT_EQ(cuda::weight_only_gemm(arranged.plan, m, rows, arranged.panels->get(),
                                     {to, Dtype::f32, 4 * w.n, has_bias ? biases.as<float>() : nullptr},
                                     workspace.get(), default_queue),
              Status::ok)
        << cuda::last_error();
  });
  const std::vector<unsigned char> bytes = y.bytes();
  // Sixteen products are cut where the largest of them ends; a weight of x's dtype is off by half of its last bit.
  const bool rounded = cuda::weight_only_rounds(arranged.plan, m, rows, this_gpu());
  const double off = !rounded ? 0x1p-20 : dtype == Dtype::f16 ? 0x1p-11 : 0x1p-8;
  const std::int64_t every = checked_every(m, w);
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t j = r % every; j < w.n; j += every) {
      double sum = has_bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0, size = std::fabs(sum);
      for (std::int64_t i = 0; i < w.k; ++i) {
        const auto input = static_cast<std::size_t>(w.input(i));
        float v = x.get(r * w.k + w.input(i));
        if (has_factor) v *= factor[input];
        const double s = static_cast<double>(w.scales.get(w.group_of[static_cast<std::size_t>(i)] * w.n + j));
        sum += static_cast<double>(v) * w.value(i, j);
        size += std::fabs(static_cast<double>(v)) * (std::fabs(w.value(i, j)) + std::fabs(s) * (1 << w.bits_of_row(i)));
      }
      const double found = static_cast<double>(read_float(bytes.data(), Dtype::f32, r * w.n + j));
      ASSERT_NEAR(found, sum, size * off + 1e-30)
          << w.k << ", " << w.n << ", " << m << ": row " << r << ", output " << j;
    }
}

Extras some_extras(ReplayableRng& rng) { return rng.coin() ? Extras::factor_and_bias : Extras::none; }

/// Panels and words as floats: those the CPU's kernel makes.
void expect_opened(const WeightCase& w, const DeviceWeight& device, const Arranged& arranged) {
  std::vector<float> wanted(static_cast<std::size_t>(w.k * w.n));
  ASSERT_EQ(weight_values_table().back().open(w.packed(), wanted.data(), Dtype::f32, serial()), Status::ok);
  const DeviceBytes opened(wanted.size() * 4);
  ASSERT_EQ(cuda::weight_only_open(device.packed(), opened.get(), Dtype::f32, default_queue), Status::ok);
  ASSERT_TRUE(device_is_well());
  EXPECT_EQ(opened.values<float>(), wanted);
  const std::int64_t wide = arranged.plan.chunks * 32;
  const DeviceBytes halves(static_cast<std::size_t>(2 * w.n * wide));
  ASSERT_EQ(
      cuda::weight_only_open_panels(arranged.plan, arranged.panels->get(), halves.get(), Dtype::f16, default_queue),
      Status::ok);
  ASSERT_TRUE(device_is_well());
  const std::vector<std::uint16_t> got = halves.values<std::uint16_t>();
  for (std::int64_t j = 0; j < w.n; ++j)
    for (std::int64_t slot = 0; slot < wide; ++slot) {
      const float value = float_from_f16(got[static_cast<std::size_t>(j * wide + slot)]);
      const std::int64_t row = arranged.rows[static_cast<std::size_t>(slot)];
      float exact = 0, size = 0;
      if (row >= 0) {
        exact = wanted[static_cast<std::size_t>(w.input(row) * w.n + j)];
        size = std::fabs(exact) + std::fabs(w.scales.get(w.group_of[static_cast<std::size_t>(row)] * w.n + j));
      }
      ASSERT_NEAR(value, exact, size * 0x1p-10f) << "output " << j << ", slot " << slot;
    }
}

constexpr Dtype float_dtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
constexpr Offset offsets[] = {Offset::none, Offset::value, Offset::zero};
constexpr std::int64_t row_counts[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 21, 22, 32, 33, 64, 65};

TEST(CudaWeightOnly, SmallOddShapesOfEveryWidth) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8})
    for (const Offset offset : offsets)
      for (int round = 0; round < 4; ++round) {
        const std::int64_t k = rng.one_of({1, 7, 31, 32, 33, 96, 257}), group = rng.one_of({32, 64, 128, 300});
        const WeightCase w({{bits, k}}, rng.one_of({1, 15, 16, 17, 65, 130}), even_groups(k, group),
                           rng.one_of(float_dtypes), offset, rng);
        const DeviceWeight device(w);
        const Arranged arranged = ordered(device, group);
        expect_product(w, arranged, rng.one_of(row_counts), rng.one_of(float_dtypes), some_extras(rng), rng);
        expect_opened(w, device, arranged);
        if (HasFatalFailure() || HasNonfatalFailure()) return;
      }
}

TEST(CudaWeightOnly, EveryNumberOfRowsAndTile) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8})
    for (const std::int64_t m : row_counts) {
      const std::int64_t k = rng.one_of({1024, 1056, 2080});
      const WeightCase w({{bits, k}}, rng.one_of({72, 200}), even_groups(k, 96), Dtype::f16, rng.one_of(offsets), rng);
      const DeviceWeight device(w);
      expect_product(w, ordered(device, 96), m, rng.one_of(float_dtypes), Extras::none, rng);
      if (HasFatalFailure()) return;
    }
}

// On Hopper blocks of a cluster, up to eight, share the slots.
TEST(CudaWeightOnly, ManySlotsOfFewOutputs) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  constexpr std::int64_t k = 16640;
  for (const int bits : {1, 2, 4, 8})
    for (const std::int64_t m : {1, 5, 8, 16, 32}) {
      const WeightCase w({{bits, k}}, rng.one_of({24, 70}), even_groups(k, 128), Dtype::f16, rng.one_of(offsets), rng);
      const DeviceWeight device(w);
      expect_product(w, ordered(device, 128), m, rng.one_of(float_dtypes), Extras::none, rng);
      if (HasFatalFailure()) return;
    }
}

/// The product of many rows, by the kernel that opens W on the way.
void expect_rounded_product(int bits, std::int64_t k, std::int64_t n, std::int64_t m, Offset offset, Dtype dtype,
                            ReplayableRng& rng) {
  const std::int64_t group = rng.one_of({32, 64, 96, 128, 3000});
  const WeightCase w({{bits, k}}, n, even_groups(k, group), dtype, offset, rng);
  const DeviceWeight device(w);
  const Arranged arranged = ordered(device, group);
  const FloatRows rows = {nullptr, dtype, row_bytes(dtype, k), nullptr};
  EXPECT_EQ(cuda::weight_only_rounds(arranged.plan, m, rows, this_gpu()), this_gpu().sm == 90)
      << k << ", " << n << ", " << m;
  expect_product(w, arranged, m, dtype, rng.one_of({Extras::none, Extras::bias}), rng);
}

// Rows that begin at multiples of 16 bytes, whole chunks and scales of x's dtype.
TEST(CudaWeightOnly, ManyRowsOfEveryWidthAndOffset) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 3, 4, 6, 8})
    for (const Offset offset : offsets) {
      const Dtype dtype = rng.one_of({Dtype::f16, Dtype::bf16});
      for (const std::int64_t m : {33, 64})
        expect_rounded_product(bits, 32 * rng.one_of({1, 2, 3, 5, 9, 16, 33}), rng.one_of({1, 16, 63, 65, 130}), m,
                               offset, dtype, rng);
      for (const std::int64_t m : {65, 129})
        expect_rounded_product(bits, 32 * rng.one_of({3, 5}), 2880, m, offset, dtype, rng);
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
}

// Twice as many blocks as an H100 has places for, and as many: the tiles of 256 and of 128 rows.
TEST(CudaWeightOnly, ManyRowsOfEveryTile) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8}) {
    const Dtype dtype = rng.one_of({Dtype::f16, Dtype::bf16});
    expect_rounded_product(bits, 1056, 16890, 500, rng.one_of(offsets), dtype, rng);
    expect_rounded_product(bits, 1056, 8190, 127, rng.one_of(offsets), dtype, rng);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

// On a pretended GPU.
TEST(CudaWeightOnly, ManyRowsRoundTheWeightOnHopperAlone) {
  const cuda::Gpu hopper{90, 132};
  const WeightOnlyPlan plan = cuda::ordered_plan(4096, 4096, 128, 4, Offset::value, Dtype::f16);
  const FloatRows rows{nullptr, Dtype::f16, 2 * 4096, nullptr};
  const auto rounds = [&](std::int64_t m) { return cuda::weight_only_rounds(plan, m, rows, hopper); };
  EXPECT_TRUE(rounds(33) && rounds(64) && rounds(65) && rounds(1024) && rounds(4096));
  EXPECT_FALSE(rounds(32));
  for (const int sm : {80, 89, 100, 120}) EXPECT_FALSE(cuda::weight_only_rounds(plan, 64, rows, {sm, 132})) << sm;

  const WeightOnlyPlan few_outputs = cuda::ordered_plan(4096, 1024, 128, 4, Offset::value, Dtype::f16);
  EXPECT_TRUE(cuda::weight_only_rounds(few_outputs, 64, rows, hopper));
  EXPECT_FALSE(cuda::weight_only_rounds(few_outputs, 65, rows, hopper));

  const std::vector<float> factor(4096, 1);
  const FloatRows others[] = {{nullptr, Dtype::bf16, 2 * 4096, nullptr},  // not of the scales' dtype
                              {nullptr, Dtype::f32, 4 * 4096, nullptr},
                              {nullptr, Dtype::f16, 2 * 4096 + 2, nullptr},  // rows between multiples of 16 bytes
                              {nullptr, Dtype::f16, 2 * 4096, factor.data()}};
  for (const FloatRows& other : others) EXPECT_FALSE(cuda::weight_only_rounds(plan, 64, other, hopper));
  const WeightOnlyPlan in_slots = cuda::slot_plan(4096, 4096, 128, 1, 4, Offset::value, Dtype::f16);
  EXPECT_FALSE(cuda::weight_only_rounds(in_slots, 64, rows, hopper));
}

TEST(CudaWeightOnly, SmallOddGroupsInSlots) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8})
    for (const std::int64_t k : {1, 40, 130}) {
      WeightCase w({{bits, k}}, 70, mixed_groups(k, 5, rng), Dtype::f16, rng.one_of(offsets), rng);
      if (rng.coin()) w.permute(rng);
      const DeviceWeight device(w);
      const Arranged arranged = in_slots(device);
      expect_product(w, arranged, rng.between(1, 20), rng.one_of(float_dtypes), some_extras(rng), rng);
      expect_opened(w, device, arranged);
      if (HasFatalFailure()) return;
    }
}

TEST(CudaWeightOnly, SmallOddRowsOfSeveralWidths) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  const std::vector<BitRun> runs = {{8, 9}, {6, 20}, {5, 7}, {4, 32}, {3, 33}, {2, 50}, {1, 11}};
  std::vector<std::int32_t> group_of;
  std::int32_t group = 0;
  for (const BitRun& run : runs) {
    for (std::int64_t i = 0; i < run.rows; ++i) group_of.push_back(group + static_cast<std::int32_t>(i / 16));
    group += static_cast<std::int32_t>((run.rows + 15) / 16);
  }
  for (const Offset offset : {Offset::none, Offset::value})
    for (const std::int64_t m : {1, 5, 40}) {
      WeightCase w(runs, 90, group_of, Dtype::bf16, offset, rng);
      w.permute(rng);
      const DeviceWeight device(w);
      const Arranged arranged = in_slots(device);
      expect_product(w, arranged, m, Dtype::f16, m == 5 ? Extras::factor_and_bias : Extras::none, rng);
      expect_opened(w, device, arranged);
      if (HasFatalFailure()) return;
    }
}

TEST(CudaWeightOnly, WrongArguments) {
  BIE_NEEDS_WEIGHT_ONLY();
  ReplayableRng rng;
  const WeightCase w({{4, 64}}, 16, even_groups(64, 32), Dtype::f16, Offset::none, rng);
  const DeviceWeight device(w);
  const Arranged arranged = ordered(device, 32);
  const DeviceBytes x(std::vector<float>(64)), y(std::vector<float>(16));
  const FloatRows rows = {x.get(), Dtype::f16, 128, nullptr};
  const FloatResults results = {y.get(), Dtype::f32, 64, nullptr};
  const auto run = [&](const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& from, const FloatResults& to) {
    return cuda::weight_only_gemm(plan, m, from, arranged.panels->get(), to, nullptr, default_queue);
  };
  EXPECT_EQ(run(arranged.plan, -1, rows, results), Status::bad_shape);
  EXPECT_EQ(run(arranged.plan, 0, rows, results), Status::ok);
  WeightOnlyPlan wrong = arranged.plan;
  wrong.group_chunks = 0;
  EXPECT_EQ(run(wrong, 1, rows, results), Status::bad_shape);
  EXPECT_EQ(run(arranged.plan, 1, {x.get(), Dtype::s8, 64, nullptr}, results), Status::bad_dtype);
  EXPECT_EQ(run(arranged.plan, 1, rows, {y.get(), Dtype::s32, 64, nullptr}), Status::bad_dtype);
  PackedWeight other = device.packed();
  other.n = 15;
  EXPECT_EQ(cuda::weight_only_prepack(other, arranged.plan, {nullptr, nullptr}, nullptr, default_queue),
            Status::bad_shape);
  EXPECT_EQ(cuda::weight_only_open_panels(arranged.plan, arranged.panels->get(), y.get(), Dtype::f32, default_queue),
            Status::bad_dtype);
}

}  // namespace
}  // namespace bie::kernels::test
