// Float rows to codes and the mean of magnitudes: the formula, every 16-bit value, ties, refusals, threads.
#include "bie/kernels/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "every_kernel.h"
#include "formulas.h"
#include "gemm_sweep.h"
#include "replayable_rng.h"

namespace bie::kernels::test {
namespace {

constexpr Dtype float_types[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::numeric_limits<float>::quiet_NaN();

struct FloatRows {
  RowsShape shape;
  Dtype dtype;
  std::int64_t row_stride;
  std::vector<unsigned char> x;
  std::vector<float> bias;  ///< empty: none
  float step = 1;
  int lo = -128, hi = 127;

  FloatRows(std::int64_t rows, std::int64_t k, Dtype type, std::int64_t gap = 0)
      : shape{rows, k}, dtype(type), row_stride(row_bytes(type, k + gap)) {
    x.resize(static_cast<std::size_t>(rows == 0 ? 0 : (rows - 1) * row_stride + row_bytes(type, k)));
  }
  void set(std::int64_t row, std::int64_t i, float value) { write_float(x.data() + row * row_stride, dtype, i, value); }
  float get(std::int64_t row, std::int64_t i) const { return read_float(x.data() + row * row_stride, dtype, i); }
  Status run(const QuantizeKernel& kernel, GuardedBytes& q, const Parallel& parallel = serial()) const {
    return kernel.run(shape, x.data(), dtype, row_stride, bias.empty() ? nullptr : bias.data(), step, lo, hi,
                      reinterpret_cast<std::int8_t*>(q.data()), parallel);
  }
  std::vector<unsigned char> expected() const {
    std::vector<unsigned char> q;
    for (std::int64_t row = 0; row < shape.rows; ++row)
      for (std::int64_t i = 0; i < shape.k; ++i) {
        const float xs = bias.empty() ? get(row, i) : get(row, i) + bias[static_cast<std::size_t>(i)];
        q.push_back(static_cast<unsigned char>(quantized(xs, step, lo, hi)));
      }
    return q;
  }
  void expect_every_kernel(const Parallel& parallel = serial()) const {
    const std::vector<unsigned char> q = expected();
    for_every_kernel(quantize_table(), [&](const QuantizeKernel& kernel) {
      GuardedBytes out(q.size());
      ASSERT_EQ(run(kernel, out, parallel), Status::ok);
      ASSERT_TRUE(same_bytes(q, out)) << shape.rows << " rows of " << shape.k << ", " << name(dtype) << ", step "
                                      << step << ", [" << lo << ", " << hi << "]";
    });
  }
};

TEST(Quantize, RandomRowsOfEveryLength) {
  ReplayableRng rng;
  const std::pair<int, int> ranges[] = {{-128, 127}, {-8, 7}, {-127, 127}, {0, 15}, {3, 3}};
  for (const Dtype dtype : float_types)
    for (const std::int64_t k : {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129, 1000})
      for (const auto& [lo, hi] : ranges)
        for (const bool with_bias : {false, true}) {
          FloatRows rows(3, k, dtype, rng.between(0, 2));
          rows.step = rng.one_of(step_choices);
          rows.lo = lo, rows.hi = hi;
          for (std::int64_t i = 0; i < 3 * k; ++i)
            rows.set(i / k, i % k, random_activation(lo - 1, hi, rows.step, dtype, rng));
          for (std::int64_t i = 0; i < k && with_bias; ++i) rows.bias.push_back(random_bias(rows.step, rng));
          rows.expect_every_kernel();
          if (testing::Test::HasFailure()) return;
        }
}

TEST(Quantize, EveryFiniteSixteenBitValue) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16})
    for (const float step : {1.0f, 0.07f, 3e-5f, 0x1p-24f, 1e-40f, 1e38f}) {
      FloatRows rows(1, 65536, dtype);
      for (std::size_t code = 0; code < 65536; ++code) {
        const Format16 format = dtype == Dtype::f16 ? f16_format : bf16_format;
        const bool finite = static_cast<int>(code & 0x7fff) < format.infinity();
        rows.x[2 * code] = finite ? static_cast<unsigned char>(code) : 0;
        rows.x[2 * code + 1] = finite ? static_cast<unsigned char>(code >> 8) : 0;
      }
      rows.step = step;
      rows.expect_every_kernel();
    }
}

TEST(Quantize, EveryOtherSixteenBitValueIsRefused) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    FloatRows rows(1, 11, dtype);
    const int first = (dtype == Dtype::f16 ? f16_format : bf16_format).infinity();
    for_every_kernel(quantize_table(), [&](const QuantizeKernel& kernel) {
      GuardedBytes q(11);
      for (int magnitude = first; magnitude < 0x8000; ++magnitude)
        for (const int code : {magnitude, magnitude | 0x8000}) {
          rows.x[18] = static_cast<unsigned char>(code);
          rows.x[19] = static_cast<unsigned char>(code >> 8);
          ASSERT_EQ(rows.run(kernel, q), Status::not_finite) << name(dtype) << " " << code;
        }
    });
  }
}

TEST(Quantize, TiesGoToEvenAndTheirNeighboursDoNot) {
  FloatRows rows(3, 301, Dtype::f32);
  rows.step = 0.25f;
  std::vector<unsigned char> q;
  for (std::int64_t side = -1; side <= 1; ++side)
    for (int i = -150; i <= 150; ++i) {
      const float tie = (static_cast<float>(i) + 0.5f) * 0.25f;
      rows.set(side + 1, i + 150, side == 0 ? tie : std::nextafter(tie, side < 0 ? -infinity : infinity));
      const int rounded = side < 0 ? i : side > 0 ? i + 1 : i % 2 == 0 ? i : i + 1;
      q.push_back(static_cast<unsigned char>(std::min(127, std::max(-128, rounded))));
    }
  ASSERT_EQ(rows.expected(), q);
  rows.expect_every_kernel();
}

// 0.3f / 0.1f and the like: a reciprocal would land on the other side of a tie.
TEST(Quantize, TheDivisionIsATrueOne) {
  ReplayableRng rng;
  int differs = 0;
  for (int round = 0; round < 20; ++round) {
    FloatRows rows(1, 2000, Dtype::f32);
    rows.step = static_cast<float>(rng.between(1, 1 << 20)) * 0x1p-22f;
    for (std::int64_t i = 0; i < 2000; ++i) {
      const float value = (static_cast<float>(rng.between(-128, 126)) + 0.5f) * rows.step;
      rows.set(0, i, value);
      differs += quantized(value, rows.step, -128, 127) != quantized(value * (1.0f / rows.step), 1, -128, 127);
    }
    rows.expect_every_kernel();
  }
  EXPECT_GT(differs, 0) << "the values of this test do not tell a division from a product";
}

TEST(Quantize, NanAndInfinityAnywhere) {
  ReplayableRng rng;
  for (const Dtype dtype : float_types) {
    FloatRows rows(3, 37, dtype, 1);
    rows.bias.assign(37, 0.25f);
    for_every_kernel(quantize_table(), [&](const QuantizeKernel& kernel) {
      GuardedBytes q(3 * 37);
      ASSERT_EQ(rows.run(kernel, q), Status::ok);
      for (const float value : {nan, infinity, -infinity})
        for (std::int64_t i = 0; i < 37; ++i) {
          for (std::int64_t at = 0; at < 3; ++at) {
            rows.set(at, i, value);
            EXPECT_EQ(rows.run(kernel, q), Status::not_finite) << value << " at kernel " << at << ", element " << i;
            rows.set(at, i, 0);
          }
          rows.bias[static_cast<std::size_t>(i)] = value;
          EXPECT_EQ(rows.run(kernel, q), Status::not_finite) << value << " in the bias at " << i;
          rows.bias[static_cast<std::size_t>(i)] = 0.25f;
        }
      EXPECT_TRUE(q.guards_intact());
    });
  }
}

TEST(Quantize, WrongArguments) {
  for_every_kernel(quantize_table(), [](const QuantizeKernel& kernel) {
    for (const float step : {0.0f, -0.0f, -1.0f, infinity, -infinity, nan}) {
      FloatRows rows(2, 9, Dtype::f32);
      rows.step = step;
      GuardedBytes q(18);
      EXPECT_EQ(rows.run(kernel, q), Status::bad_scale) << step;
      EXPECT_TRUE(q.untouched());
    }
    for (const Dtype dtype : {Dtype::s8, Dtype::s4, Dtype::bits, Dtype::s32}) {
      FloatRows rows(2, 9, Dtype::f32);
      rows.dtype = dtype;
      GuardedBytes q(18);
      EXPECT_EQ(rows.run(kernel, q), Status::bad_dtype) << name(dtype);
      EXPECT_TRUE(q.untouched());
    }
    for (const RowsShape& shape : {RowsShape{-1, 9}, RowsShape{2, -1}}) {
      FloatRows rows(2, 9, Dtype::f32);
      rows.shape = shape;
      GuardedBytes q(18);
      EXPECT_EQ(rows.run(kernel, q), Status::bad_shape);
      EXPECT_TRUE(q.untouched());
    }
  });
}

TEST(Quantize, ThreadsDoNotShowInTheResult) {
  ReplayableRng rng;
  FloatRows rows(301, 500, Dtype::f32, 1);
  for (std::int64_t i = 0; i < 301 * 500; ++i)
    rows.set(i / 500, i % 500, random_activation(-128, 127, 1, Dtype::f32, rng));
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    rows.expect_every_kernel(pool.parallel());
  }
  rows.set(300, 499, nan);
  ThreadPool pool(2);
  for_every_kernel(quantize_table(), [&](const QuantizeKernel& kernel) {
    GuardedBytes q(301 * 500);
    EXPECT_EQ(rows.run(kernel, q, pool.parallel()), Status::not_finite);
  });
}

}  // namespace
}  // namespace bie::kernels::test
