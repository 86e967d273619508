// Weight-only products of int8 activations: the reference against the law of bie/kernels/weight_only_q8.h, computed
// here from the codes that the words were made of, and every kernel against the reference, bit for bit.
#include "bie/kernels/weight_only_q8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/arithmetic/float_bits.h"
#include "weight_only_product.h"

#if defined(__x86_64__)
#include "kernels/cpu/weight_only/weight_only_q8_driver.h"

namespace bie::kernels::cpu::amx_emulated {
extern const WeightOnlyQ8Tile weight_only_q8_tile;
}
#endif

namespace bie::kernels::test {
namespace {

constexpr std::int64_t no_rows(const void*) { return 0; }

/// The kernels of the table and the AMX tile over emulated registers, for any number of rows.
Table<WeightOnlyGemmKernel> kernels_of_codes() {
  static const std::vector<WeightOnlyGemmKernel> every = [] {
    std::vector<WeightOnlyGemmKernel> kernels;
#if defined(__x86_64__)
    kernels.push_back(cpu::q8_kernel_of_two<cpu::amx_emulated::weight_only_q8_tile, cpu::avx512::weight_only_q8_tile,
                                            cpu::avx2::weight_only_passes, no_rows>("emulated", Isa::avx512));
#endif
    for (const WeightOnlyGemmKernel& kernel : weight_only_q8_table()) kernels.push_back(kernel);
    return kernels;
  }();
  return {every.data(), static_cast<int>(every.size())};
}

double step_of(float a) { return static_cast<double>(f32(static_cast<double>(a) / 127)); }

/// One output, in float64 where one operation is rounded once: products of two float32 numbers are exact there, and a
/// fused multiply-add of them is rounded twice only where its sum has more than 53 bits, which fma itself takes.
float output_of_law(const Product& p, std::int64_t row, std::int64_t j) {
  const WeightCase& w = p.weight;
  float y = 0;
  for (std::int64_t g = 0; g < w.groups; ++g) {
    const int h = 1 << (w.bits_of_group(g) - 1);
    float a = 0;
    bool finite = true;
    for (std::int64_t i = 0; i < w.k; ++i) {
      if (w.group_of[static_cast<std::size_t>(i)] != g) continue;
      const float x = p.scaled_x(row, w.input(i));
      finite = finite && std::isfinite(x);
      a = std::max(a, std::fabs(x));
    }
    std::int64_t products = 0, all = 0;
    float d = finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    if (finite && a >= 0x1p-100f) {
      const double r = static_cast<double>(f32(127 / static_cast<double>(a)));
      d = static_cast<float>(step_of(a));
      for (std::int64_t i = 0; i < w.k; ++i) {
        if (w.group_of[static_cast<std::size_t>(i)] != g) continue;
        const double scaled = static_cast<double>(f32(static_cast<double>(p.scaled_x(row, w.input(i))) * r));
        const auto u = static_cast<std::int64_t>(std::nearbyint(scaled));
        EXPECT_LE(std::abs(u), 127);
        products += u * (w.code(i, j) - h);
        all += u;
      }
    }
    const std::int64_t at = g * w.n + j;
    const float s = w.scales.get(at);
    float t = f32(static_cast<double>(products) * static_cast<double>(s));
    if (w.offset == Offset::value)
      t = std::fma(static_cast<float>(all), std::fma(static_cast<float>(h), s, -w.float_zeros.get(at)), t);
    if (w.offset == Offset::zero) {
      const double part = static_cast<double>(s) * (h - w.whole_zeros[static_cast<std::size_t>(at)]);
      t = std::fma(static_cast<float>(all), f32(part), t);
    }
    y = std::fma(d, t, y);
  }
  return p.bias.empty() ? y : y + p.bias[static_cast<std::size_t>(j)];
}

void expect_the_law(const Product& p) {
  const std::vector<unsigned char> bytes = p.result(weight_only_q8_table().back(), Dtype::f32, serial()).bytes();
  for (std::int64_t r = 0; r < p.m; ++r)
    for (std::int64_t j = 0; j < p.weight.n; ++j)
      ASSERT_EQ(read_float(bytes.data(), Dtype::f32, r * p.weight.n + j), output_of_law(p, r, j))
          << "row " << r << ", output " << j;
}

/// A form of whole numbers: step * q - zero.
struct WholeNumbers {
  int bits, step, zero;
};

/// The same for such a weight.
float output_of_law(const Product& p, const WholeNumbers& form, std::int64_t group, std::int64_t row, std::int64_t j) {
  const WeightCase& w = p.weight;
  float y = 0;
  for (std::int64_t g = 0; g < w.groups; ++g) {
    const std::int64_t end = std::min(w.k, (g + 1) * group);
    float a = 0;
    for (std::int64_t i = g * group; i < end; ++i) a = std::max(a, std::fabs(p.scaled_x(row, i)));
    std::int64_t products = 0;
    const bool live = a >= 0x1p-100f;
    const double r = live ? static_cast<double>(f32(127 / static_cast<double>(a))) : 0;
    for (std::int64_t i = g * group; i < end; ++i) {
      const double scaled = static_cast<double>(f32(static_cast<double>(p.scaled_x(row, i)) * r));
      products += static_cast<std::int64_t>(std::nearbyint(scaled)) * (form.step * w.code(i, j) - form.zero);
    }
    const float s = w.scales.get(g * w.n + j), t = f32(static_cast<double>(products) * static_cast<double>(s));
    y = std::fma(live ? static_cast<float>(step_of(a)) : 0, t, y);
  }
  return p.bias.empty() ? y : y + p.bias[static_cast<std::size_t>(j)];
}

TEST(WeightOnlyQ8, WholeNumbersTimesAScaleHaveNoOffset) {
  ReplayableRng rng;
  for (const WholeNumbers& form :
       {WholeNumbers{2, 1, 1}, {1, 2, 1}, {1, 2, 2}, {1, 1, 2}, {2, 1, 4}, {3, 1, 2}, {4, 1, 16}})
    for (int round = 0; round < 6; ++round) {
      const std::int64_t k = rng.one_of({1, 7, 33, 100, 257, 600}), group = rng.one_of({1, 5, 32, 64, 128, 256});
      const WeightCase w({{form.bits, k}}, rng.one_of({1, 17, 64, 65, 131}), even_groups(k, group),
                         rng.one_of(float_dtypes), Offset::none, rng);
      Product p(w, rng.between(1, 21), rng.one_of(float_dtypes), rng);
      if (rng.coin()) p.add_extras(rng);
      const RowsOfCase rows{w, group, form.step, form.zero};
      ASSERT_EQ(check_q8_weight(rows.rows()), Status::ok);
      std::vector<float> wanted;
      for (std::int64_t r = 0; r < p.m; ++r)
        for (std::int64_t j = 0; j < w.n; ++j) wanted.push_back(output_of_law(p, form, group, r, j));
      for_every_pool([&](const Parallel& parallel) {
        for_every_kernel(kernels_of_codes(), [&](const WeightOnlyGemmKernel& kernel) {
          const std::size_t bytes = kernel.rows_bytes(rows.rows());
          const PackedMemory packed(bytes);
          kernel.prepack_rows(rows.rows(), packed.get(), parallel);
          std::vector<float> found(wanted.size());
          ASSERT_EQ(kernel.run({p.m, w.n, w.k}, p.input(), packed.get(),
                               {found.data(), Dtype::f32, 4 * w.n, p.bias.empty() ? nullptr : p.bias.data()}, parallel),
                    Status::ok);
          for (std::size_t i = 0; i < wanted.size(); ++i)
            ASSERT_EQ(found[i], wanted[i])
                << form.bits << " bits, " << p.m << "x" << k << "x" << w.n << ", group " << group << ", output " << i;
        });
      });
      if (HasFailure()) return;
    }
}

/// A weight whose float32 scales and zeros are products, and their factors.
struct LeveledCase {
  WeightCase weight;
  std::int64_t group, super_block;
  int middle = 1 << (weight.runs.front().bits - 1);
  std::vector<std::uint8_t> a, b;  ///< [n, groups]
  std::vector<float> d, least;     ///< [n, super-blocks]

  LeveledCase(WeightCase w, std::int64_t group_size, std::int64_t groups_of_super, ReplayableRng& rng)
      : weight(std::move(w)), group(group_size), super_block(group_size * groups_of_super) {
    for (std::int64_t j = 0; j < weight.n; ++j)
      for (std::int64_t g = 0; g < weight.groups; ++g) {
        if (g % groups_of_super == 0) {
          d.push_back(float_from_f16(f16_from_float(static_cast<float>(rng.between(-999, 999)) / 512)));
          least.push_back(float_from_f16(f16_from_float(static_cast<float>(rng.between(-999, 999)) / 4096)));
        }
        a.push_back(static_cast<std::uint8_t>(rng.one_of({0, 1, 127, 128, 129, 191, 255})));
        b.push_back(static_cast<std::uint8_t>(rng.one_of({0, 1, 63, 255})));
        weight.scales.set(g * weight.n + j, d.back() * static_cast<float>(a.back() - 128));
        weight.float_zeros.set(g * weight.n + j, least.back() * static_cast<float>(b.back()));
      }
  }
  WeightRows rows() const {
    return {weight.k, weight.n,    group,      weight.runs.front().bits, Dtype::f32, weight.offset, 1, middle, open,
            this,     super_block, open_levels};
  }
  static void open(const void* of, std::int64_t j, std::uint8_t* codes, float* scales, float* zeros) {
    const auto& self = *static_cast<const LeveledCase*>(of);
    const RowsOfCase plain{self.weight, self.group, 1, self.middle};
    RowsOfCase::open(&plain, j, codes, scales, zeros);
  }
  static void open_levels(const void* of, std::int64_t j, const ScaleLevels& to) {
    const auto& self = *static_cast<const LeveledCase*>(of);
    const std::int64_t groups = self.weight.groups;
    const auto supers = static_cast<std::int64_t>(self.d.size()) / self.weight.n;
    std::copy_n(self.a.data() + j * groups, groups, to.a);
    std::copy_n(self.b.data() + j * groups, groups, to.b);
    std::copy_n(self.d.data() + j * supers, supers, to.d);
    std::copy_n(self.least.data() + j * supers, supers, to.least);
  }
};

TEST(WeightOnlyQ8, ScalesOfTwoLevelsAreTheirProducts) {
  ReplayableRng rng;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8})
    for (const Offset offset : {Offset::none, Offset::value})
      for (int round = 0; round < 4; ++round) {
        const std::int64_t k = rng.one_of({1, 16, 33, 256, 300, 512, 800}), group = rng.one_of({5, 16, 32, 128});
        const LeveledCase leveled(
            WeightCase({{bits, k}}, rng.one_of({1, 17, 64, 65, 131}), even_groups(k, group), Dtype::f32, offset, rng),
            group, rng.one_of({1, 3, 8, 16, 255}), rng);
        const WeightCase& w = leveled.weight;
        Product p(w, rng.between(1, 21), rng.one_of(float_dtypes), rng);
        if (rng.coin()) p.add_extras(rng);
        ASSERT_EQ(check_q8_weight(leveled.rows()), Status::ok);
        std::vector<float> wanted;
        for (std::int64_t r = 0; r < p.m; ++r)
          for (std::int64_t j = 0; j < w.n; ++j) wanted.push_back(output_of_law(p, r, j));
        for_every_pool([&](const Parallel& parallel) {
          for_every_kernel(kernels_of_codes(), [&](const WeightOnlyGemmKernel& kernel) {
            const std::size_t bytes = kernel.rows_bytes(leveled.rows());
            const PackedMemory packed(bytes);
            kernel.prepack_rows(leveled.rows(), packed.get(), parallel);
            if (kernel.isa != Isa::reference) {  // no byte depends on the threads
              const PackedMemory alone(bytes);
              kernel.prepack_rows(leveled.rows(), alone.get(), serial());
              ASSERT_EQ(std::memcmp(packed.get(), alone.get(), bytes), 0);
            }
            std::vector<float> found(wanted.size());
            ASSERT_EQ(
                kernel.run({p.m, w.n, w.k}, p.input(), packed.get(),
                           {found.data(), Dtype::f32, 4 * w.n, p.bias.empty() ? nullptr : p.bias.data()}, parallel),
                Status::ok);
            for (std::size_t i = 0; i < wanted.size(); ++i)
              ASSERT_EQ(found[i], wanted[i]) << bits << " bits, " << p.m << "x" << k << "x" << w.n << ", group "
                                             << group << ", super-block " << leveled.super_block << ", output " << i;
          });
        });
        if (HasFailure()) return;
      }
}

TEST(WeightOnlyQ8, ScalesOfTwoLevelsTakeTheirOwnBytes) {
  // Q4_K: 4 bits a weight, for 32 of them a byte of each kind, for 256 two 16-bit floats.
  const std::int64_t n = 128, k = 4096, bytes = n * (k / 2 + 2 * (k / 32) + 4 * (k / 256));
  WeightRows w{k, n, 32, 4, Dtype::f32, Offset::value, 1, 8, nullptr, nullptr};
  w.super_block = 256;
  w.open_levels = [](const void*, std::int64_t, const ScaleLevels&) {};
  ASSERT_EQ(check_weight(w), Status::ok);
  for_every_kernel(weight_only_q8_table(), [&](const WeightOnlyGemmKernel& kernel) {
    if (kernel.isa == Isa::reference) return;  // it keeps words
    const auto head = static_cast<std::int64_t>(kernel.rows_bytes(w)) - bytes;
    EXPECT_GE(head, 0);
    EXPECT_LE(head, 128 + 16 * (k / 32) + 64);
  });
}

TEST(WeightOnlyQ8, SuperBlocksOfWrongSizesAreRefused) {
  WeightRows w{512, 3, 32, 4, Dtype::f32, Offset::value, 1, 8, nullptr, nullptr};
  w.open_levels = [](const void*, std::int64_t, const ScaleLevels&) {};
  for (const std::int64_t wrong : {-32, 16, 33, 256 * 32}) {
    w.super_block = wrong;
    EXPECT_EQ(check_q8_weight(w), Status::bad_shape) << wrong;
  }
  w.super_block = 256;
  EXPECT_EQ(check_q8_weight(w), Status::ok);
  w.open_levels = nullptr;
  EXPECT_EQ(check_q8_weight(w), Status::bad_shape);
  const WeightRows ternary{512, 3, 32,      2,       Dtype::f32, Offset::none,
                           1,   1, nullptr, nullptr, 256,        [](const void*, std::int64_t, const ScaleLevels&) {}};
  EXPECT_EQ(check_q8_weight(ternary), Status::bad_shape);
}

void expect_every_kernel_alike(const Product& p, Dtype out) {
  test::expect_every_kernel_alike(kernels_of_codes(), p, out);
}

TEST(WeightOnlyQ8, EveryWidthAndRaggedSize) {
  ReplayableRng rng;
  const std::int64_t ks[] = {1, 2, 3, 7, 8, 17, 31, 64, 100, 129, 257};
  const std::int64_t ns[] = {1, 15, 16, 17, 63, 64, 65, 128, 129, 200};
  for (const int bits : {1, 2, 3, 4, 5, 6, 8})
    for (const Offset offset : offsets)
      for (int round = 0; round < 3; ++round) {
        const std::int64_t k = rng.one_of(ks), size = rng.one_of({1, 5, 16, 32, 64, 128});
        const WeightCase w({{bits, k}}, rng.one_of(ns), even_groups(k, size), rng.one_of(float_dtypes), offset, rng);
        Product p(w, rng.between(1, 14), rng.one_of(float_dtypes), rng);
        if (rng.coin()) p.add_extras(rng);
        expect_the_law(p);
        expect_every_kernel_alike(p, rng.one_of(float_dtypes));
        if (HasFailure()) return;
      }
}

TEST(WeightOnlyQ8, EveryNumberOfRowsHasTheSameBits) {
  ReplayableRng rng;
  const std::int64_t k = 96, n = 150, most = 40;
  for (const int bits : {1, 2, 4, 8}) {
    const WeightCase w({{bits, k}}, n, even_groups(k, 32), Dtype::f16, Offset::zero, rng);
    const Product p(w, most, Dtype::f32, rng);
    for_every_kernel(kernels_of_codes(), [&](const WeightOnlyGemmKernel& kernel) {
      const std::vector<unsigned char> all = p.result(kernel, Dtype::f32, serial()).bytes();
      for (std::int64_t rows = 1; rows <= most; ++rows) {
        const std::int64_t first = most - rows, bytes = 4 * n;
        const std::vector<unsigned char> part(all.begin() + first * bytes, all.end());
        ASSERT_TRUE(same_bytes(part, p.result(kernel, Dtype::f32, serial(), first, rows))) << rows << " rows";
      }
    });
  }
}

/// The largest sums that there are: every product of one sign.
TEST(WeightOnlyQ8, TheLargestGroup) {
  ReplayableRng rng;
  const std::int64_t k = most_q8_rows, n = 3;
  for (const int bits : {1, 2, 4, 8}) {
    WeightCase w({{bits, k}}, n, even_groups(k, k), Dtype::f32, rng.one_of(offsets), rng);
    for (std::int64_t j = 0; j < n; ++j) {  // all codes 0, all the largest, and each in turn
      const int top = (1 << bits) - 1;
      std::fill(w.words.begin(), w.words.end(), 0);
      for (std::int64_t i = 0; i < k; ++i) {
        const int code[] = {0, top, i % 2 == 0 ? top : 0};
        for (std::int64_t c = 0; c < n; ++c) {
          w.codes[static_cast<std::size_t>(i * n + c)] = code[c];
          w.words[static_cast<std::size_t>(i * bits / 32 * n + c)] |= static_cast<std::uint32_t>(code[c])
                                                                      << (i * bits % 32);
        }
      }
    }
    Product p(w, 5, Dtype::f32, rng);
    for (std::int64_t i = 0; i < k; ++i) {
      const float signs[] = {1, -1, i % 2 == 0 ? 1.0f : -1.0f, i % 2 == 0 ? -1.0f : 1.0f, i < k / 2 ? 1.0f : -1.0f};
      for (std::int64_t r = 0; r < 5; ++r) p.x.set(r * k + i, signs[r]);
    }
    expect_the_law(p);
    expect_every_kernel_alike(p, Dtype::f32);
    if (HasFailure()) return;
  }
}

/// Sums on both sides of 2^22, and scales of 16 bits to infinity: the AMX tile multiplies small ones in one operation.
TEST(WeightOnlyQ8, LargeSumsAndScalesOfSixteenBits) {
  ReplayableRng rng;
  const std::int64_t n = 3;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> every_scales[] = {{1, -0.25f, 0x1p-14f},
                                             {0x1p15f, 0, -0x1p-24f},
                                             {1, infinity, -1},
                                             {0x1p99f, -0x1p100f, 1},
                                             {0x1p120f, 0x1p-120f, 1}};
  for (const std::int64_t size : {258, 259})  // 127 * 128 * 258 < 2^22 < 127 * 128 * 259
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
      for (const std::vector<float>& scales : every_scales) {
        WeightCase w({{8, 2 * size}}, n, even_groups(2 * size, size), dtype, Offset::none, rng);
        std::fill(w.words.begin(), w.words.end(), 0u);
        std::fill(w.codes.begin(), w.codes.end(), 0);
        bool finite = true;
        for (std::int64_t at = 0; at < 2 * n; ++at) {
          w.scales.set(at, scales[static_cast<std::size_t>(at % n)]);
          finite = finite && std::isfinite(w.scales.get(at));
        }
        Product p(w, 3, Dtype::f32, rng);
        for (std::int64_t i = 0; i < 3 * w.k; ++i)  // the last row's sums are small or 0, which infinity makes NaN
          p.x.set(i, finite && i >= 2 * w.k && i % w.k % size % 2 == 1 ? -1.0f : 1.0f);
        expect_the_law(p);
        expect_every_kernel_alike(p, Dtype::f32);
        if (HasFailure()) return;
      }
}

TEST(WeightOnlyQ8, ManyRowsAreThoseOfSmallerProducts) {
  ReplayableRng rng;
  const WeightCase w({{4, 9}}, 3, even_groups(9, 4), Dtype::f16, Offset::value, rng);
  const Product p(w, 2100, Dtype::bf16, rng);
  expect_every_kernel_alike(p, Dtype::f16);
  // Blocks of these rows take more than the share that the second cache keeps.
  const WeightCase wide({{4, 2048}}, 3, even_groups(2048, 16), Dtype::f16, Offset::value, rng);
  expect_every_kernel_alike(Product(wide, 200, Dtype::f32, rng), Dtype::f32);
}

TEST(WeightOnlyQ8, GroupsOfAnyOrderAndSize) {
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8})
    for (const std::int64_t k : {1, 40, 130}) {
      const WeightCase w({{bits, k}}, 70, mixed_groups(k, 5, rng), Dtype::f16, rng.one_of(offsets), rng);
      Product p(w, rng.between(1, 8), Dtype::f32, rng);
      p.add_extras(rng);
      expect_the_law(p);
      expect_every_kernel_alike(p, Dtype::f32);
      if (HasFailure()) return;
    }
}

TEST(WeightOnlyQ8, PermutedRowsOfSeveralWidths) {
  ReplayableRng rng;
  const std::vector<BitRun> runs = {{8, 9}, {6, 20}, {5, 7}, {4, 32}, {3, 33}, {2, 50}, {1, 11}};
  std::vector<std::int32_t> group_of;
  std::int32_t group = 0;
  for (const BitRun& run : runs) {
    for (std::int64_t i = 0; i < run.rows; ++i) group_of.push_back(group + static_cast<std::int32_t>(i / 16));
    group += static_cast<std::int32_t>((run.rows + 15) / 16);
  }
  for (const Offset offset : offsets)
    for (const std::int64_t m : {1, 5, 30}) {
      WeightCase w(runs, 90, group_of, Dtype::bf16, offset, rng);
      w.permute(rng);
      const Product p(w, m, Dtype::f16, rng);
      expect_the_law(p);
      expect_every_kernel_alike(p, Dtype::f32);
    }
}

/// Ties go to even; one row of a group decides the step size of all.
TEST(WeightOnlyQ8, CodesAreRoundedToEven) {
  ReplayableRng rng;
  const std::int64_t k = 12;
  const WeightCase w({{4, k}}, 20, even_groups(k, k), Dtype::f32, Offset::none, rng);
  Product p(w, 3, Dtype::f32, rng);
  const float row[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, 3.4999f, 0, -0.0f};
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t r = 0; r < 3; ++r) p.x.set(r * k + i, row[i] * (r == 2 ? -1.0f : 1.0f));
  expect_the_law(p);
  expect_every_kernel_alike(p, Dtype::f32);
}

TEST(WeightOnlyQ8, SmallestAndLargestNumbers) {
  ReplayableRng rng;
  const std::int64_t k = 40, n = 33;
  const WeightCase w({{4, k}}, n, even_groups(k, 16), Dtype::f32, Offset::value, rng);
  const float sizes[] = {0,         0x1p-149f, 0x1p-101f, std::nextafter(0x1p-100f, 0.0f),
                         0x1p-100f, 0x1p-90f,  0x1p90f,   0x1p120f};
  const auto m = static_cast<std::int64_t>(std::size(sizes));
  Product p(w, m, Dtype::f32, rng);
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t i = 0; i < k; ++i)  // the middle group as small as that, its neighbours not
      if (i / 16 == 1) p.x.set(r * k + i, sizes[r] * (i % 2 == 0 ? 1.0f : -0.25f));
  expect_the_law(p);
  expect_every_kernel_alike(p, Dtype::f32);
}

TEST(WeightOnlyQ8, EmptySizes) {
  ReplayableRng rng;
  const WeightCase none({{4, 0}}, 5, {}, Dtype::f32, Offset::none, rng),
      some({{4, 8}}, 5, even_groups(8, 8), Dtype::f32, Offset::none, rng);
  for_every_kernel(kernels_of_codes(), [&](const WeightOnlyGemmKernel& kernel) {
    const Product zeros(none, 3, Dtype::f32, rng);
    EXPECT_EQ(zeros.result(kernel, Dtype::f32, serial()).bytes(), std::vector<unsigned char>(60, 0));
    EXPECT_TRUE(Product(some, 0, Dtype::f32, rng).result(kernel, Dtype::f32, serial()).untouched());
  });
}

TEST(WeightOnlyQ8, NanAndInfinityMakeTheirRowNan) {
  ReplayableRng rng;
  const std::int64_t k = 80, n = 33;
  const WeightCase w({{4, k}}, n, even_groups(k, 40), Dtype::f32, Offset::value, rng);
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    for (const std::int64_t place : {0, 7, 39, 79}) {
      Product p(w, 4, Dtype::f32, rng), plain = p;
      p.x.set(2 * k + place, odd);
      for_every_kernel(kernels_of_codes(), [&](const WeightOnlyGemmKernel& kernel) {
        const std::vector<unsigned char> found = p.result(kernel, Dtype::f32, serial()).bytes(),
                                         whole = plain.result(kernel, Dtype::f32, serial()).bytes();
        for (std::int64_t i = 0; i < 4 * n; ++i) {
          const float y = read_float(found.data(), Dtype::f32, i);
          if (i / n == 2)
            EXPECT_TRUE(std::isnan(y));
          else
            EXPECT_EQ(y, read_float(whole.data(), Dtype::f32, i));
        }
      });
    }
}

TEST(WeightOnlyQ8, WrongArguments) {
  ReplayableRng rng;
  WeightCase w({{4, 40}}, 33, even_groups(40, 16), Dtype::f32, Offset::none, rng);
  EXPECT_EQ(check_q8_weight(w.packed()), Status::ok);
  const Product p(w, 2, Dtype::f32, rng);
  for_every_kernel(kernels_of_codes(), [&](const WeightOnlyGemmKernel& kernel) {
    const PackedMemory packed(kernel.packed_bytes(w.packed()));
    kernel.prepack(w.packed(), packed.get(), serial());
    GuardedBytes y(2 * 33 * 4);
    const FloatResults to{y.data(), Dtype::f32, 33 * 4, nullptr};
    const FloatRows x = p.input();
    for (const GemmShape& shape : {GemmShape{-1, 33, 40}, {2, -1, 40}, {2, 33, -1}, {2, 32, 40}, {2, 33, 41}})
      EXPECT_EQ(kernel.run(shape, x, packed.get(), to, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.run({2, 33, 40}, {x.data, Dtype::s8, 40, nullptr}, packed.get(), to, serial()), Status::bad_dtype);
    EXPECT_EQ(kernel.run({2, 33, 40}, x, packed.get(), {y.data(), Dtype::s32, 33 * 4, nullptr}, serial()),
              Status::bad_dtype);
    EXPECT_TRUE(y.untouched());
  });
  w.group_of[11] = 3;
  EXPECT_EQ(check_q8_weight(w.packed()), Status::bad_shape);
  const WeightCase deep({{1, most_q8_rows + 2}}, 1, even_groups(most_q8_rows + 2, most_q8_rows), Dtype::f32,
                        Offset::none, rng);
  EXPECT_EQ(check_q8_weight(deep.packed()), Status::ok);
  WeightCase deeper = deep;
  deeper.group_of.back() = 0;
  EXPECT_EQ(check_q8_weight(deeper.packed()), Status::too_deep);
}

}  // namespace
}  // namespace bie::kernels::test
