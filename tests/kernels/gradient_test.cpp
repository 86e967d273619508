// Operands of backward passes: every kernel gives the formula's bits, whatever the number of threads.
#include "bie/kernels/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan_value = std::numeric_limits<float>::quiet_NaN();

/// run(kernel, out, parallel) of every kernel on every pool gives these floats.
template <class Run>
void expect_floats(const std::vector<float>& expected, const Run& run) {
  const std::vector<unsigned char> wanted = bytes_of(expected.data(), 4 * expected.size());
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(gradient_table(), [&](const GradientKernel& kernel) {
      GuardedBytes out(wanted.size());
      ASSERT_EQ(run(kernel, reinterpret_cast<float*>(out.data()), parallel), Status::ok);
      ASSERT_TRUE(same_bytes(wanted, out)) << expected.size() << " elements";
    });
  });
}

const CodeBounds bounds[] = {{-128, 127, 1e-5f}, {-8, 7, 1e-5f}, {-8, 7, 0.25f}};

TEST(Gradient, QuantizedValues) {
  ReplayableRng rng;
  for (const std::int64_t count : element_counts)
    for (const CodeBounds& b : bounds) {
      const Elements x = random_elements(Dtype::f32, count, 20, rng);
      const float scale = 0.17f, by = -0.3f, step = std::max(scale, b.floor);
      std::vector<float> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        const double code = quantized(x.get(i), step, static_cast<int>(b.lo), static_cast<int>(b.hi));
        expected.push_back(f32(code * static_cast<double>(by)));
      }
      expect_floats(expected, [&](const GradientKernel& kernel, float* out, const Parallel& parallel) {
        return kernel.quantized_values(x.floats(), count, scale, b, by, out, parallel);
      });
      if (HasFailure()) return;
    }
}

TEST(Gradient, TiesAndEndsOfTheRange) {
  const std::vector<float> x = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 6.5f, 7.5f, -8.5f, 1e30f, -infinity, infinity};
  expect_floats({0, 2, 2, 0, -2, 6, 7, -8, 7, -8, 7},
                [&](const GradientKernel& kernel, float* out, const Parallel& parallel) {
                  return kernel.quantized_values(x.data(), 11, 1, {-8, 7, 1e-5f}, 1, out, parallel);
                });
  for_every_kernel(gradient_table(), [](const GradientKernel& kernel) {
    float out = 0;
    ASSERT_EQ(kernel.quantized_values(&nan_value, 1, 1, {-8, 7, 1e-5f}, 1, &out, serial()), Status::ok);
    EXPECT_TRUE(std::isnan(out));
  });
}

TEST(Gradient, CodeValues) {
  ReplayableRng rng;
  for (const std::int64_t count : element_counts) {
    const Elements codes = random_elements(Dtype::s8, count, 1, rng);
    std::vector<float> expected;
    for (std::int64_t i = 0; i < count; ++i) expected.push_back(f32(codes.codes()[i] * static_cast<double>(0.037f)));
    expect_floats(expected, [&](const GradientKernel& kernel, float* out, const Parallel& parallel) {
      return kernel.code_values(codes.codes(), count, 0.037f, out, parallel);
    });
  }
}

TEST(Gradient, SignValues) {
  ReplayableRng rng;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8})
    for (const std::int64_t count : element_counts) {
      Elements t = random_elements(dtype, count, 1, rng);
      if (count > 30 && dtype != Dtype::s8) {
        t.set(11, nan_value);
        t.set(12, infinity);
        t.set(13, -infinity);
      }
      std::vector<float> expected;
      for (std::int64_t i = 0; i < count; ++i) expected.push_back(t.get(i) > 0 ? 0.75f : t.get(i) < 0 ? -0.75f : 0.0f);
      expect_floats(expected, [&](const GradientKernel& kernel, float* out, const Parallel& parallel) {
        return kernel.sign_values(t.bytes.data(), dtype, count, 0.75f, out, parallel);
      });
      if (HasFailure()) return;
    }
}

TEST(Gradient, MaskClipped) {
  ReplayableRng rng;
  for (const std::int64_t count : element_counts)
    for (const CodeBounds& b : bounds) {
      const Elements w = random_elements(Dtype::f32, count, 40, rng), grad = random_elements(Dtype::f32, count, 1, rng);
      const float step = std::max(0.3f, b.floor);
      std::vector<float> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        const double v = f32(static_cast<double>(w.get(i)) / static_cast<double>(step));
        const bool inside = v >= static_cast<double>(b.lo) && v <= static_cast<double>(b.hi);
        expected.push_back(inside ? grad.get(i) : std::copysign(0.0f, grad.get(i)));
      }
      expect_floats(expected, [&](const GradientKernel& kernel, float* out, const Parallel& parallel) {
        std::copy_n(grad.floats(), count, out);
        return kernel.mask_clipped(out, w.floats(), count, 0.3f, b, parallel);
      });
      if (HasFailure()) return;
    }
}

TEST(Gradient, SignsOfCodes) {
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(gradient_table(), [&](const GradientKernel& kernel) {
      for (const std::int64_t count : element_counts) {
        std::vector<std::int8_t> codes, expected;
        for (std::int64_t i = 0; i < count; ++i) {
          codes.push_back(static_cast<std::int8_t>(i % 256 - 128));
          expected.push_back(codes.back() > 0 ? 1 : codes.back() < 0 ? -1 : 0);
        }
        ASSERT_EQ(kernel.sign_codes(codes.data(), count, codes.data(), parallel), Status::ok);
        ASSERT_EQ(codes, expected);
      }
      std::int8_t code = 3;
      EXPECT_EQ(kernel.sign_codes(&code, -1, &code, parallel), Status::bad_shape);
    });
  });
}

TEST(Gradient, EveryPairOfCodesAddsUpWithinInt8) {
  Elements sum(Dtype::s8, 65536), grad(Dtype::s8, 65536);
  std::vector<unsigned char> expected;
  for (int i = 0; i < 65536; ++i) {
    const int a = i / 256 - 128, b = i % 256 - 128;
    sum.set(i, static_cast<float>(a));
    grad.set(i, static_cast<float>(b));
    expected.push_back(static_cast<unsigned char>(std::min(127, std::max(-127, a + b))));
  }
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(gradient_table(), [&](const GradientKernel& kernel) {
      for (const std::int64_t count : element_counts) {
        GuardedBytes out(static_cast<std::size_t>(count));
        if (count > 0) std::memcpy(out.data(), sum.bytes.data() + 9000, static_cast<std::size_t>(count));
        ASSERT_EQ(kernel.accumulate(reinterpret_cast<std::int8_t*>(out.data()), grad.codes() + 9000, count, parallel),
                  Status::ok);
        ASSERT_TRUE(same_bytes({expected.begin() + 9000, expected.begin() + 9000 + count}, out)) << count;
      }
      Elements all = sum;
      ASSERT_EQ(kernel.accumulate(all.codes(), grad.codes(), 65536, parallel), Status::ok);
      ASSERT_EQ(all.bytes, expected);
    });
  });
}

TEST(Gradient, WrongArguments) {
  for_every_kernel(gradient_table(), [](const GradientKernel& kernel) {
    float out = 5, in = 1;
    std::int8_t code = 3;
    EXPECT_EQ(kernel.quantized_values(&in, -1, 1, bounds[0], 1, &out, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.code_values(&code, -1, 1, &out, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.mask_clipped(&out, &in, -1, 1, bounds[0], serial()), Status::bad_shape);
    EXPECT_EQ(kernel.sign_values(&in, Dtype::f32, -1, 1, &out, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.accumulate(&code, &code, -1, serial()), Status::bad_shape);
    for (const Dtype dtype : {Dtype::s4, Dtype::bits, Dtype::s32})
      EXPECT_EQ(kernel.sign_values(&in, dtype, 1, 1, &out, serial()), Status::bad_dtype);
    EXPECT_EQ(out, 5);
    EXPECT_EQ(code, 3);
  });
}

}  // namespace
}  // namespace bie::kernels::test
