// Products of floats and a weight in packed words, from every kernel of a table.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "bie/kernels/weight_only_gemm.h"
#include "every_kernel.h"
#include "weight_only_cases.h"

namespace bie::kernels::test {

struct Product {
  const WeightCase& weight;
  Elements x;
  std::int64_t m;
  std::vector<float> factor, bias;

  Product(const WeightCase& w, std::int64_t rows, Dtype dtype, ReplayableRng& rng)
      : weight(w), x(random_elements(dtype, rows * w.k, 1, rng)), m(rows) {}

  void add_extras(ReplayableRng& rng) {
    for (std::int64_t i = 0; i < weight.k; ++i) factor.push_back(static_cast<float>(rng.between(-200, 200)) / 128);
    for (std::int64_t j = 0; j < weight.n; ++j) bias.push_back(static_cast<float>(rng.between(-200, 200)) / 128);
  }
  /// From a kernel of the table, packed by itself.
  GuardedBytes result(const WeightOnlyGemmKernel& kernel, Dtype out, const Parallel& parallel, std::int64_t first = 0,
                      std::int64_t rows = -1) const {
    const PackedWeight w = weight.packed();
    const PackedMemory packed(kernel.packed_bytes(w));
    kernel.prepack(w, packed.get(), parallel);
    rows = rows < 0 ? m : rows;
    GuardedBytes y(static_cast<std::size_t>(rows * row_bytes(out, w.n)));
    const Status status =
        kernel.run({rows, w.n, w.k}, input(first), packed.get(),
                   {y.data(), out, row_bytes(out, w.n), bias.empty() ? nullptr : bias.data()}, parallel);
    EXPECT_EQ(status, Status::ok);
    return y;
  }
  FloatRows input(std::int64_t first = 0) const {
    const std::int64_t stride = row_bytes(x.dtype, weight.k);
    return {x.bytes.data() + first * stride, x.dtype, stride, factor.empty() ? nullptr : factor.data()};
  }
  float scaled_x(std::int64_t row, std::int64_t i) const {
    const float v = x.get(row * weight.k + i);
    return factor.empty() ? v : f32(static_cast<double>(v) * static_cast<double>(factor[static_cast<std::size_t>(i)]));
  }
};

/// The reference is the last of them.
inline void expect_every_kernel_alike(const Table<WeightOnlyGemmKernel>& table, const Product& p, Dtype out) {
  const std::vector<unsigned char> wanted = p.result(table.back(), out, serial()).bytes();
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(table, [&](const WeightOnlyGemmKernel& kernel) {
      ASSERT_TRUE(same_bytes(wanted, p.result(kernel, out, parallel)))
          << p.m << "x" << p.weight.k << "x" << p.weight.n << ", threads " << parallel.threads;
    });
  });
}

inline constexpr Dtype float_dtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
inline constexpr Offset offsets[] = {Offset::none, Offset::value, Offset::zero};

}  // namespace bie::kernels::test
