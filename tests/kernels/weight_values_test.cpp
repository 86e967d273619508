// Weights of packed codes as values: opened against float64, packed again, stepped; every kernel with the same bits.
#include "bie/kernels/weight_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "every_kernel.h"
#include "weight_only_cases.h"

namespace bie::kernels::test {
namespace {

constexpr Offset offsets[] = {Offset::none, Offset::value, Offset::zero};

/// One of every width, permuted, with groups of odd sizes and rows of several widths among them.
std::vector<WeightCase> some_weights(Offset offset, ReplayableRng& rng) {
  std::vector<WeightCase> weights;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    const std::int64_t k = rng.one_of({1, 7, 40, 97}), n = rng.one_of({1, 63, 64, 65, 130});
    const Dtype dtype = rng.one_of({Dtype::f32, Dtype::bf16, Dtype::f16});
    weights.push_back({{{bits, k}}, n, rng.coin() ? even_groups(k, 16) : mixed_groups(k, 3, rng), dtype, offset, rng});
    if (rng.coin()) weights.back().permute(rng);
  }
  std::vector<std::int32_t> group_of(30, 0);
  for (std::size_t i = 0; i < 30; ++i) group_of[i] = static_cast<std::int32_t>(i / 10);
  weights.push_back({{{8, 10}, {5, 10}, {3, 10}}, 70, group_of, Dtype::f16, offset, rng});
  weights.back().permute(rng);
  return weights;
}

TEST(WeightValues, OpenIsTheWeight) {
  ReplayableRng rng;
  for (const Offset offset : offsets)
    for (const WeightCase& w : some_weights(offset, rng))
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
        for_every_kernel(weight_values_table(), [&](const WeightValuesKernel& kernel) {
          GuardedBytes values(static_cast<std::size_t>(row_bytes(dtype, w.k * w.n)));
          ASSERT_EQ(kernel.open(w.packed(), values.data(), dtype, serial()), Status::ok);
          ASSERT_TRUE(values.guards_intact());
          const double eps = dtype == Dtype::f32 ? 0x1p-23 : dtype == Dtype::f16 ? 0x1p-10 : 0x1p-7;
          const std::vector<unsigned char> found = values.bytes();
          for (std::int64_t i = 0; i < w.k; ++i)
            for (std::int64_t j = 0; j < w.n; ++j) {
              const double wanted = w.value(i, j);
              // s * q is rounded before z is taken from it
              const double s = static_cast<double>(w.scales.get(w.group_of[static_cast<std::size_t>(i)] * w.n + j));
              const double room = eps * std::fabs(wanted) + 0x1p-24 * std::fabs(s) * 256 + 0x1p-24;
              ASSERT_NEAR(static_cast<double>(read_float(found.data(), dtype, w.input(i) * w.n + j)), wanted, room)
                  << "row " << i << ", output " << j;
            }
        });
}

TEST(WeightValues, PackIsTheInverseAndEveryKernelAlike) {
  ReplayableRng rng;
  for (const Offset offset : offsets)
    for (const WeightCase& w : some_weights(offset, rng)) {
      const std::int64_t count = w.k * w.n;
      std::vector<float> values(static_cast<std::size_t>(count));
      ASSERT_EQ(weight_values_table().back().open(w.packed(), values.data(), Dtype::f32, serial()), Status::ok);
      std::vector<float> between = values;
      for (float& value : between) value += static_cast<float>(rng.between(-100, 100)) / 512;
      for (const bool at_random : {false, true}) {
        std::vector<std::uint32_t> wanted(w.words.size());
        ASSERT_EQ(
            weight_values_table().back().pack(w.packed(), between.data(), {at_random, 7}, wanted.data(), serial()),
            Status::ok);
        for_every_pool([&](const Parallel& parallel) {
          for_every_kernel(weight_values_table(), [&](const WeightValuesKernel& kernel) {
            std::vector<std::uint32_t> words(w.words.size(), 0xcdcdcdcd);
            ASSERT_EQ(kernel.pack(w.packed(), between.data(), {at_random, 7}, words.data(), parallel), Status::ok);
            ASSERT_EQ(words, wanted);
          });
        });
      }
      WeightCase scaled = w;  // a scale of 0 keeps no code
      for (std::int64_t g = 0; g < w.groups * w.n; ++g) scaled.scales.set(g, std::fabs(w.scales.get(g)) + 0.0625f);
      ASSERT_EQ(weight_values_table().back().open(scaled.packed(), values.data(), Dtype::f32, serial()), Status::ok);
      std::vector<std::uint32_t> words(w.words.size());
      ASSERT_EQ(weight_values_table().begin()->pack(scaled.packed(), values.data(), {false, 0}, words.data(), serial()),
                Status::ok);
      ASSERT_EQ(words, w.words);
    }
}

TEST(WeightValues, EveryKernelStepsAlikeOnAnyThreads) {
  ReplayableRng rng;
  for (const Offset offset : offsets)
    for (const WeightCase& w : some_weights(offset, rng))
      for (int form = 0; form < 4; ++form) {
        const std::int64_t count = w.k * w.n;
        const Dtype moments = form % 2 == 0 ? Dtype::f32 : Dtype::bf16,
                    grad_dtype = rng.one_of({Dtype::f32, Dtype::f16});
        const Elements grad = random_elements(grad_dtype, count, 1, rng), l = random_elements(moments, count, 1, rng);
        Elements s = random_elements(moments, count, 1, rng);
        for (std::int64_t i = 0; i < count; ++i) s.set(i, std::fabs(s.get(i)));
        const Elements rest = random_elements(Dtype::bf16, count, 0.01f, rng);
        struct Result {
          std::vector<std::uint32_t> words;
          std::vector<std::int32_t> whole;
          std::vector<unsigned char> zeros, l, s, rest;
        };
        const auto result = [&](const WeightValuesKernel& kernel, const Parallel& parallel) {
          Result r{w.words, w.whole_zeros, w.float_zeros.bytes, l.bytes, s.bytes, rest.bytes};
          PackedWeight packed = w.packed();
          packed.words = r.words.data();
          if (offset == Offset::value) packed.zeros = r.zeros.data();
          if (offset == Offset::zero) packed.zeros = r.whole.data();
          const bool has_moments = form != 3;
          const Status status = kernel.step(packed,
                                            {r.words.data(),
                                             const_cast<void*>(packed.zeros),
                                             grad.bytes.data(),
                                             grad_dtype,
                                             has_moments ? r.l.data() : nullptr,
                                             has_moments ? r.s.data() : nullptr,
                                             moments,
                                             form == 2 ? reinterpret_cast<std::uint16_t*>(r.rest.data()) : nullptr,
                                             {0.9f, 0.99f, 0.1f, 0.01f, 1e-6f, 0.01f},
                                             0.05f,
                                             form != 1,
                                             11},
                                            parallel);
          EXPECT_EQ(status, Status::ok);
          return r;
        };
        const Result wanted = result(weight_values_table().back(), serial());
        for_every_pool([&](const Parallel& parallel) {
          for_every_kernel(weight_values_table(), [&](const WeightValuesKernel& kernel) {
            const Result found = result(kernel, parallel);
            ASSERT_EQ(found.words, wanted.words);
            ASSERT_EQ(found.whole, wanted.whole);
            ASSERT_EQ(found.zeros, wanted.zeros);
            ASSERT_EQ(found.l, wanted.l);
            ASSERT_EQ(found.s, wanted.s);
            ASSERT_EQ(found.rest, wanted.rest);
          });
        });
        if (HasFailure()) return;
      }
}

TEST(WeightValues, WrongArguments) {
  ReplayableRng rng;
  const WeightCase w({{4, 8}}, 5, even_groups(8, 4), Dtype::f32, Offset::value, rng);
  PackedWeight few = w.packed();
  few.k = 9;
  const std::vector<float> values(45, 0.0f);
  for_every_kernel(weight_values_table(), [&](const WeightValuesKernel& kernel) {
    GuardedBytes out(45 * 4);
    auto* const words = reinterpret_cast<std::uint32_t*>(out.data());
    EXPECT_EQ(kernel.open(few, out.data(), Dtype::f32, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.open(w.packed(), out.data(), Dtype::s8, serial()), Status::bad_dtype);
    EXPECT_EQ(kernel.pack(few, values.data(), {false, 0}, words, serial()), Status::bad_shape);
    WeightStep step{};
    step.words = words;
    step.grad = values.data();
    step.grad_dtype = Dtype::s8;
    EXPECT_EQ(kernel.step(w.packed(), step, serial()), Status::bad_dtype);
    step.grad_dtype = Dtype::f32;
    step.l = step.s = out.data();
    step.moments = Dtype::f16;
    EXPECT_EQ(kernel.step(w.packed(), step, serial()), Status::bad_dtype);
    EXPECT_EQ(kernel.step(few, step, serial()), Status::bad_shape);
    EXPECT_TRUE(out.untouched());
  });
}

}  // namespace
}  // namespace bie::kernels::test
