// Weight-only products: the reference against float64, and every kernel against the reference bit for bit.
#include "bie/kernels/weight_only_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "bie/kernels/weight_only_q8.h"
#include "weight_only_product.h"

namespace bie::kernels::test {
namespace {

void expect_close_to_float64(const Product& p) {
  const WeightCase& w = p.weight;
  const GuardedBytes y = p.result(weight_only_gemm_table().back(), Dtype::f32, serial());
  const std::vector<unsigned char> bytes = y.bytes();
  for (std::int64_t r = 0; r < p.m; ++r)
    for (std::int64_t j = 0; j < w.n; ++j) {
      double sum = p.bias.empty() ? 0 : static_cast<double>(p.bias[static_cast<std::size_t>(j)]), size = std::fabs(sum);
      for (std::int64_t i = 0; i < w.k; ++i) {
        const double x = static_cast<double>(p.scaled_x(r, w.input(i))), value = w.value(i, j);
        const double s = static_cast<double>(w.scales.get(w.group_of[static_cast<std::size_t>(i)] * w.n + j));
        sum += x * value;
        size += std::fabs(x) * (std::fabs(value) + std::fabs(s) * (1 << w.bits_of_row(i)));
      }
      const double found = static_cast<double>(read_float(bytes.data(), Dtype::f32, r * w.n + j));
      ASSERT_NEAR(found, sum, size * 0x1p-24 * static_cast<double>(w.k + 8)) << "row " << r << ", output " << j;
    }
}

TEST(WeightOnlyGemm, EveryWidthAndRaggedSize) {
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
        expect_close_to_float64(p);
        expect_every_kernel_alike(weight_only_gemm_table(), p, rng.one_of(float_dtypes));
        if (HasFailure()) return;
      }
}

TEST(WeightOnlyGemm, EveryNumberOfRowsHasTheSameBits) {
  ReplayableRng rng;
  const std::int64_t k = 96, n = 150;
  const WeightCase w({{4, k}}, n, even_groups(k, 32), Dtype::f16, Offset::zero, rng);
  const Product p(w, 20, Dtype::f32, rng);
  for_every_kernel(weight_only_gemm_table(), [&](const WeightOnlyGemmKernel& kernel) {
    const std::vector<unsigned char> all = p.result(kernel, Dtype::f32, serial()).bytes();
    for (std::int64_t rows = 1; rows <= 20; ++rows) {
      const std::int64_t first = 20 - rows, bytes = 4 * n;
      const std::vector<unsigned char> part(all.begin() + first * bytes, all.end());
      ASSERT_TRUE(same_bytes(part, p.result(kernel, Dtype::f32, serial(), first, rows))) << rows << " rows";
    }
  });
}

TEST(WeightOnlyGemm, RowsMayLieApart) {
  ReplayableRng rng;
  const std::int64_t k = 24, n = 140, m = 9;
  const WeightCase w({{4, k}}, n, even_groups(k, 8), Dtype::f16, Offset::zero, rng);
  const Product dense(w, m, Dtype::f32, rng);
  Elements apart(Dtype::f32, m * (k + 3));
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t i = 0; i < k; ++i) apart.set(r * (k + 3) + i, dense.x.get(r * k + i));
  for (const Dtype out : float_dtypes)
    for_every_kernel(weight_only_gemm_table(), [&](const WeightOnlyGemmKernel& kernel) {
      const std::vector<unsigned char> wanted = dense.result(kernel, out, serial()).bytes();
      const PackedMemory packed(kernel.packed_bytes(w.packed()));
      kernel.prepack(w.packed(), packed.get(), serial());
      const std::int64_t bytes = row_bytes(out, n), stride = bytes + 12;
      GuardedBytes y(static_cast<std::size_t>(m * stride));
      ASSERT_EQ(kernel.run({m, n, k}, {apart.bytes.data(), Dtype::f32, 4 * (k + 3), nullptr}, packed.get(),
                           {y.data(), out, stride, nullptr}, serial()),
                Status::ok);
      std::vector<unsigned char> spread = GuardedBytes::blank(static_cast<std::size_t>(m * stride));
      for (std::int64_t r = 0; r < m; ++r)
        std::copy(wanted.begin() + r * bytes, wanted.begin() + (r + 1) * bytes, spread.begin() + r * stride);
      ASSERT_TRUE(same_bytes(spread, y));
    });
}

TEST(WeightOnlyGemm, ManyRowsAreThoseOfSmallerProducts) {
  ReplayableRng rng;
  const WeightCase w({{4, 9}}, 3, even_groups(9, 4), Dtype::f16, Offset::value, rng);
  const Product p(w, 2100, Dtype::bf16, rng);
  expect_every_kernel_alike(weight_only_gemm_table(), p, Dtype::f16);
}

TEST(WeightOnlyGemm, GroupsOfAnyOrderAndSize) {
  ReplayableRng rng;
  for (const int bits : {1, 2, 4, 8})
    for (const std::int64_t k : {1, 40, 130}) {
      const WeightCase w({{bits, k}}, 70, mixed_groups(k, 5, rng), Dtype::f16, rng.one_of(offsets), rng);
      Product p(w, rng.between(1, 8), Dtype::f32, rng);
      p.add_extras(rng);
      expect_close_to_float64(p);
      expect_every_kernel_alike(weight_only_gemm_table(), p, Dtype::f32);
      if (HasFailure()) return;
    }
}

TEST(WeightOnlyGemm, PermutedRowsOfSeveralWidths) {
  ReplayableRng rng;
  const std::vector<BitRun> runs = {{8, 9}, {6, 20}, {5, 7}, {4, 32}, {3, 33}, {2, 50}, {1, 11}};
  std::vector<std::int32_t> group_of;
  std::int32_t group = 0;
  for (const BitRun& run : runs) {
    for (std::int64_t i = 0; i < run.rows; ++i) group_of.push_back(group + static_cast<std::int32_t>(i / 16));
    group += static_cast<std::int32_t>((run.rows + 15) / 16);
  }
  for (const Offset offset : offsets)
    for (const std::int64_t m : {1, 5}) {
      WeightCase w(runs, 90, group_of, Dtype::bf16, offset, rng);
      w.permute(rng);
      const Product p(w, m, Dtype::f16, rng);
      expect_close_to_float64(p);
      expect_every_kernel_alike(weight_only_gemm_table(), p, Dtype::f32);
    }
}

/// Every byte of an arrangement, from words and from rows; behind the last panel rows need nothing.
void expect_one_arrangement(const Table<WeightOnlyGemmKernel>& table, const WeightCase& w, std::int64_t group,
                            int zero) {
  const RowsOfCase rows{w, group, 1, zero};
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(table, [&](const WeightOnlyGemmKernel& kernel) {
      const std::size_t bytes = kernel.rows_bytes(rows.rows()), most = kernel.packed_bytes(w.packed());
      ASSERT_LE(bytes, most);
      const PackedMemory from_words(most), from_rows(bytes);
      kernel.prepack(w.packed(), from_words.get(), parallel);
      std::memset(from_rows.get(), 0x5a, bytes);
      kernel.prepack_rows(rows.rows(), from_rows.get(), parallel);
      ASSERT_EQ(std::memcmp(from_words.get(), from_rows.get(), bytes), 0);
    });
  });
}

TEST(WeightOnlyGemm, RowsAreArrangedAsWordsAre) {
  ReplayableRng rng;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8})
    for (const Offset offset : offsets)
      for (const std::int64_t n : {1, 31, 64, 65, 131}) {
        const std::int64_t k = rng.one_of({1, 7, 32, 100, 257}), group = rng.one_of({5, 16, 32, 300});
        WeightCase w({{bits, k}}, n, even_groups(k, group), rng.one_of(float_dtypes), offset, rng);
        const int middle = 1 << (bits - 1), zero = offset != Offset::zero ? middle : middle == 1 ? 2 : 1;
        if (offset == Offset::zero && bits > 4) continue;
        std::fill(w.whole_zeros.begin(), w.whole_zeros.end(), zero);
        expect_one_arrangement(weight_only_gemm_table(), w, group, zero);
        if (offset != Offset::zero) expect_one_arrangement(weight_only_q8_table(), w, group, zero);
        if (HasFailure()) return;
      }
}

TEST(WeightOnlyGemm, PanelsOfRowsHaveNoGaps) {
  const std::int64_t n = 128, k = 6400, group = 32, codes = n * k / 2, scales = 2 * n * (k / group);
  const WeightRows w{k, n, group, 4, Dtype::f16, Offset::none, 1, 8, nullptr, nullptr};
  ASSERT_EQ(check_weight(w), Status::ok);
  for (const auto& table : {weight_only_gemm_table(), weight_only_q8_table()})
    for_every_kernel(table, [&](const WeightOnlyGemmKernel& kernel) {
      if (kernel.isa == Isa::reference) return;  // it keeps words
      const auto head = static_cast<std::int64_t>(kernel.rows_bytes(w)) - codes - scales;
      EXPECT_GE(head, 0);
      EXPECT_LE(head, 128 + 16 * (k / group) + 64);
    });
}

TEST(WeightOnlyGemm, RowsOfWrongSizesAreRefused) {
  const WeightRows good{8, 3, 4, 4, Dtype::f16, Offset::none, 1, 3, nullptr, nullptr};
  const auto with = [&](auto member, auto value) {
    WeightRows w = good;
    w.*member = value;
    return w;
  };
  EXPECT_EQ(check_weight(good), Status::ok);
  EXPECT_EQ(check_weight(with(&WeightRows::k, -1)), Status::bad_shape);
  EXPECT_EQ(check_weight(with(&WeightRows::group, 0)), Status::bad_shape);
  EXPECT_EQ(check_weight(with(&WeightRows::bits, 7)), Status::bad_shape);
  EXPECT_EQ(check_weight(with(&WeightRows::zero, 17)), Status::bad_shape);
  EXPECT_EQ(check_weight(with(&WeightRows::zero, 0)), Status::bad_shape);
  EXPECT_EQ(check_weight(with(&WeightRows::step, 2)), Status::bad_shape);
  EXPECT_EQ(check_weight(with(&WeightRows::bits, 5)), Status::bad_shape);
  EXPECT_EQ(check_weight(with(&WeightRows::offset, Offset::zero)), Status::bad_shape);
  EXPECT_EQ(check_weight(with(&WeightRows::scale_dtype, Dtype::s8)), Status::bad_dtype);
  WeightRows deep = good;
  deep.k = deep.group = most_q8_rows + 1;
  EXPECT_EQ(check_q8_weight(deep), Status::too_deep);
  deep.k = most_q8_rows;
  EXPECT_EQ(check_q8_weight(deep), Status::ok);
}

TEST(WeightOnlyGemm, EmptySizes) {
  ReplayableRng rng;
  const WeightCase none({{4, 0}}, 5, {}, Dtype::f32, Offset::none, rng),
      some({{4, 8}}, 5, even_groups(8, 8), Dtype::f32, Offset::none, rng);
  for_every_kernel(weight_only_gemm_table(), [&](const WeightOnlyGemmKernel& kernel) {
    const Product zeros(none, 3, Dtype::f32, rng);
    EXPECT_EQ(zeros.result(kernel, Dtype::f32, serial()).bytes(), std::vector<unsigned char>(60, 0));
    EXPECT_TRUE(Product(some, 0, Dtype::f32, rng).result(kernel, Dtype::f32, serial()).untouched());
  });
}

TEST(WeightOnlyGemm, NanAndInfinityReachTheirRowAlone) {
  ReplayableRng rng;
  const WeightCase w({{4, 40}}, 33, even_groups(40, 16), Dtype::f32, Offset::value, rng);
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Product p(w, 4, Dtype::f32, rng), plain = p;
    p.x.set(2 * 40 + 7, odd);
    for_every_kernel(weight_only_gemm_table(), [&](const WeightOnlyGemmKernel& kernel) {
      const std::vector<unsigned char> found = p.result(kernel, Dtype::f32, serial()).bytes(),
                                       whole = plain.result(kernel, Dtype::f32, serial()).bytes();
      for (std::int64_t i = 0; i < 4 * 33; ++i) {
        if (i / 33 == 2)
          EXPECT_FALSE(std::isfinite(read_float(found.data(), Dtype::f32, i)));
        else
          EXPECT_EQ(read_float(found.data(), Dtype::f32, i), read_float(whole.data(), Dtype::f32, i));
      }
    });
  }
}

TEST(WeightOnlyGemm, WrongArguments) {
  ReplayableRng rng;
  WeightCase w({{4, 40}}, 33, even_groups(40, 16), Dtype::f32, Offset::none, rng);
  const Product p(w, 2, Dtype::f32, rng);
  const auto refused = [&](const PackedWeight& weight, Status why) { EXPECT_EQ(check_weight(weight), why); };
  const BitRun seven[] = {{7, 40}}, nine[] = {{9, 40}}, few[] = {{4, 39}}, many[] = {{4, 41}},
               two[] = {{4, 20}, {2, 20}};
  for (const BitRun* runs : {seven, nine, few, many}) {
    PackedWeight weight = w.packed();
    weight.runs = runs;
    refused(weight, Status::bad_shape);
  }
  PackedWeight weight = w.packed();
  weight.runs = two;  // the group of rows 16 ... 31 would have both widths
  weight.run_count = 2;
  refused(weight, Status::bad_shape);
  weight = w.packed();
  weight.scale_dtype = Dtype::s8;
  refused(weight, Status::bad_dtype);
  for (const std::int32_t group : {-1, 3}) {
    w.group_of[11] = group;
    refused(w.packed(), Status::bad_shape);
  }
  w.group_of[11] = 0;
  w.permute(rng);
  const std::int32_t kept = w.input_of[3];
  for (const std::int32_t input : {-1, 40, w.input_of[4]}) {
    w.input_of[3] = input;
    refused(w.packed(), Status::bad_shape);
  }
  w.input_of[3] = kept;

  for_every_kernel(weight_only_gemm_table(), [&](const WeightOnlyGemmKernel& kernel) {
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
}

}  // namespace
}  // namespace bie::kernels::test
