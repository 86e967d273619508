// Codes by the largest element: the formula's bits from every kernel, whatever the threads, and what is refused.
#include "bie/kernels/amax_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "bie/kernels/quantize.h"
#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

constexpr Dtype float_types[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan_value = std::numeric_limits<float>::quiet_NaN();

/// check(kernel, parallel) of every kernel on every pool.
template <class Check>
void everywhere(const Check& check) {
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(amax_codes_table(), [&](const AmaxCodesKernel& kernel) { check(kernel, parallel); });
  });
}

/// v * bound / amax, the factor and the product rounded to float32.
float over(float v, float bound, float amax) {
  const float factor = f32(static_cast<double>(bound) / static_cast<double>(amax));
  return f32(static_cast<double>(v) * static_cast<double>(factor));
}

double clamped_code(float v, double lo, double hi) { return std::min(hi, std::max(lo, half_to_even(v))); }

TEST(AmaxCodes, ExtremesAnywhere) {
  ReplayableRng rng;
  for (const Dtype dtype : float_types)
    for (const std::int64_t count : element_counts) {
      Elements x = random_elements(dtype, count, 3, rng);
      const std::int64_t low = count == 0 ? 0 : rng.between(0, count - 1),
                         high = (low + 1) % std::max(count, std::int64_t{1});
      if (count > 1) {
        x.set(low, -1000);
        x.set(high, 2000);
      }
      everywhere([&](const AmaxCodesKernel& kernel, const Parallel& parallel) {
        Extremes all{};
        ASSERT_EQ(kernel.extremes(x.bytes.data(), dtype, count, &all, parallel), Status::ok);
        ASSERT_TRUE(all.all_finite);
        if (count == 1) return;
        ASSERT_EQ(all.min, count == 0 ? infinity : x.get(low));
        ASSERT_EQ(all.max, count == 0 ? -infinity : x.get(high));
      });
      for (const float odd : {nan_value, infinity, -infinity}) {
        if (count == 0) continue;
        x.set(low, odd);
        everywhere([&](const AmaxCodesKernel& kernel, const Parallel& parallel) {
          Extremes all{};
          ASSERT_EQ(kernel.extremes(x.bytes.data(), dtype, count, &all, parallel), Status::ok);
          ASSERT_FALSE(all.all_finite) << odd << " at " << low << " of " << count;
        });
      }
      if (HasFailure()) return;
    }
}

TEST(AmaxCodes, AmaxQuantize) {
  ReplayableRng rng;
  for (const Dtype dtype : float_types)
    for (const std::int64_t count : element_counts)
      for (const AmaxRange& range :
           {AmaxRange{-127, 127, false}, {-128, 127, false}, {0, 65535, true}, {-1, 1, false}}) {
        const Elements x = random_elements(dtype, count, range.is_unsigned ? 0 : 3, rng);
        const float amax = 2.3f;
        Elements expected(dtype, count);
        for (std::int64_t i = 0; i < count; ++i) {
          const float v = over(x.get(i), range.bound, amax);
          // A code of 0 keeps its sign, as rint() leaves it.
          expected.set(i, std::copysign(static_cast<float>(std::fabs(clamped_code(v, range.lo, range.bound))), v));
        }
        everywhere([&](const AmaxCodesKernel& kernel, const Parallel& parallel) {
          GuardedBytes q(x.bytes.size());
          float scale = 0;
          ASSERT_EQ(kernel.amax_quantize(x.bytes.data(), dtype, count, amax, range, q.data(), &scale, parallel),
                    Status::ok);
          ASSERT_EQ(scale, f32(static_cast<double>(range.bound) / static_cast<double>(amax)));
          ASSERT_TRUE(same_bytes(expected.bytes, q)) << count << " of " << static_cast<int>(dtype);
        });
        if (HasFailure()) return;
      }
}

TEST(AmaxCodes, AnAmaxOfNothing) {
  const float x[] = {-1e-44f, 0, 1e-44f};
  for_every_kernel(amax_codes_table(), [&](const AmaxCodesKernel& kernel) {
    float q[3], scale = 0;
    ASSERT_EQ(kernel.amax_quantize(x, Dtype::f32, 3, 0, {-127, 127, false}, q, &scale, serial()), Status::ok);
    for (const float code : q) EXPECT_EQ(code, 0);
    EXPECT_EQ(scale, 1);
    ASSERT_EQ(kernel.amax_quantize(x, Dtype::f32, 3, 1e-44f, {-127, 127, false}, q, &scale, serial()), Status::ok);
    EXPECT_EQ(q[0], -127);
    EXPECT_EQ(q[2], 127);
    EXPECT_EQ(scale, 1) << "bound / amax is beyond float32";
    for (const float amax : {-1.0f, infinity, nan_value})
      EXPECT_EQ(kernel.amax_quantize(x, Dtype::f32, 3, amax, {-127, 127, false}, q, &scale, serial()),
                Status::bad_scale);
  });
}

TEST(AmaxCodes, Int8Grad) {
  ReplayableRng rng;
  for (const Dtype dtype : float_types)
    for (const std::int64_t count : element_counts)
      for (const bool negative : {false, true}) {
        Elements g = random_elements(dtype, count, 3, rng);
        for (std::int64_t i = 0; i < count && negative; ++i) g.set(i, -std::fabs(g.get(i)));
        const float gain = 0.3f;
        float most = -infinity, least = infinity;
        std::vector<float> v;
        for (std::int64_t i = 0; i < count; ++i) {
          v.push_back(f32(static_cast<double>(g.get(i)) * static_cast<double>(gain)));
          most = std::max(most, v.back());
          least = std::min(least, v.back());
        }
        const float amax = most > 0 ? most : std::fabs(least);
        std::vector<unsigned char> expected;
        for (const float value : v)
          expected.push_back(static_cast<unsigned char>(
              amax == 0 ? 0 : static_cast<int>(clamped_code(over(value, 127, amax), -127, 127))));
        everywhere([&](const AmaxCodesKernel& kernel, const Parallel& parallel) {
          GuardedBytes q(expected.size());
          ASSERT_EQ(
              kernel.int8_grad(g.bytes.data(), dtype, count, gain, reinterpret_cast<std::int8_t*>(q.data()), parallel),
              Status::ok);
          ASSERT_TRUE(same_bytes(expected, q)) << count << " of " << static_cast<int>(dtype);
        });
        if (count > 0) g.set(count / 2, negative ? infinity : nan_value);
        everywhere([&](const AmaxCodesKernel& kernel, const Parallel& parallel) {
          GuardedBytes q(expected.size());
          ASSERT_EQ(
              kernel.int8_grad(g.bytes.data(), dtype, count, gain, reinterpret_cast<std::int8_t*>(q.data()), parallel),
              Status::ok);
          ASSERT_TRUE(same_bytes(std::vector<unsigned char>(expected.size()), q)) << "a step that is left out";
        });
        if (HasFailure()) return;
      }
}

TEST(AmaxCodes, BinaryInit) {
  ReplayableRng rng;
  for (const Dtype dtype : float_types)
    for (const std::int64_t count : element_counts)
      for (const float shift : {0.0f, 5.0f}) {
        if (count == 0) continue;
        Elements w = random_elements(dtype, count, 2, rng);
        for (std::int64_t i = 0; i < count; ++i) w.set(i, w.get(i) + shift);
        long double sum = 0, magnitude = 0;
        for (std::int64_t i = 0; i < count; ++i) {
          sum += w.get(i);
          magnitude += std::fabs(w.get(i));
        }
        const float mean_of_all = static_cast<float>(sum / count);
        EXPECT_FLOAT_EQ(mean_table().back().elements(w.bytes.data(), dtype, count, serial()), mean_of_all);
        const float centre = mean_table().back().elements(w.bytes.data(), dtype, count, serial());
        std::vector<float> centred;
        float amax = 0;
        for (std::int64_t i = 0; i < count; ++i) {
          centred.push_back(f32(static_cast<double>(w.get(i)) - static_cast<double>(centre)));
          amax = std::max(amax, centred.back());
        }
        std::vector<unsigned char> expected;
        for (const float c : centred) {
          const double code = amax == 0 ? 0 : clamped_code(over(c, 127, amax), -127, 127);
          expected.push_back(static_cast<unsigned char>(code != 0 ? static_cast<int>(code) : c < 0 ? -1 : 1));
        }
        everywhere([&](const AmaxCodesKernel& kernel, const Parallel& parallel) {
          GuardedBytes q(expected.size());
          float scale = 0;
          ASSERT_EQ(kernel.binary_init(w.bytes.data(), dtype, count, reinterpret_cast<std::int8_t*>(q.data()), &scale,
                                       parallel),
                    Status::ok);
          ASSERT_FLOAT_EQ(scale, static_cast<float>(magnitude / count));
          ASSERT_TRUE(same_bytes(expected, q)) << count << " of " << static_cast<int>(dtype);
        });
        if (HasFailure()) return;
      }
}

TEST(AmaxCodes, BinaryInitOfEqualWeightsIsAllOnes) {
  for_every_kernel(amax_codes_table(), [](const AmaxCodesKernel& kernel) {
    const std::vector<float> w(37, 0.3f);
    std::int8_t q[37];
    float scale = 0;
    ASSERT_EQ(kernel.binary_init(w.data(), Dtype::f32, 37, q, &scale, serial()), Status::ok);
    for (const int code : q) EXPECT_EQ(code, 1);
    EXPECT_FLOAT_EQ(scale, 0.3f);
  });
}

TEST(AmaxCodes, WrongArguments) {
  for_every_kernel(amax_codes_table(), [](const AmaxCodesKernel& kernel) {
    const float x[] = {1, 2};
    float scale = 5, out[2] = {7, 7};
    std::int8_t q[2] = {9, 9};
    Extremes all{};
    for (const Dtype dtype : {Dtype::s8, Dtype::s4, Dtype::bits, Dtype::s32}) {
      EXPECT_EQ(kernel.extremes(x, dtype, 2, &all, serial()), Status::bad_dtype);
      EXPECT_EQ(kernel.amax_quantize(x, dtype, 2, 1, {-127, 127, false}, out, &scale, serial()), Status::bad_dtype);
      EXPECT_EQ(kernel.int8_grad(x, dtype, 2, 1, q, serial()), Status::bad_dtype);
      EXPECT_EQ(kernel.binary_init(x, dtype, 2, q, &scale, serial()), Status::bad_dtype);
    }
    EXPECT_EQ(kernel.extremes(x, Dtype::f32, -1, &all, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.amax_quantize(x, Dtype::f32, -1, 1, {-127, 127, false}, out, &scale, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.int8_grad(x, Dtype::f32, -1, 1, q, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.binary_init(x, Dtype::f32, -1, q, &scale, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.binary_init(x, Dtype::f32, 0, q, &scale, serial()), Status::bad_shape);
    for (const float odd : {nan_value, infinity, -infinity}) {
      const float w[] = {1, odd};
      EXPECT_EQ(kernel.binary_init(w, Dtype::f32, 2, q, &scale, serial()), Status::not_finite);
    }
    const float wide[] = {-3e38f, -3e38f, -3e38f, 3e38f};
    std::int8_t four[4];
    float its_scale = 0;
    EXPECT_EQ(kernel.binary_init(wide, Dtype::f32, 4, four, &its_scale, serial()), Status::bad_scale);
    EXPECT_EQ(scale, 5);
    for (const float value : out) EXPECT_EQ(value, 7);
    for (const int code : q) EXPECT_EQ(code, 9);
  });
}

TEST(CodesWithin, OneCodeOutside) {
  ReplayableRng rng;
  for (const std::int64_t count : element_counts) {
    Elements codes(Dtype::s8, count);
    for (std::int64_t i = 0; i < count; ++i) codes.set(i, static_cast<float>(rng.between(-8, 7)));
    for_every_pool([&](const Parallel& parallel) {
      ASSERT_TRUE(codes_within(codes.codes(), count, -8, 7, parallel));
      for (const int outside : {-9, 8, -128, 127}) {
        if (count == 0) continue;
        Elements other = codes;
        other.set(rng.between(0, count - 1), static_cast<float>(outside));
        ASSERT_FALSE(codes_within(other.codes(), count, -8, 7, parallel)) << outside << " in " << count;
        ASSERT_TRUE(codes_within(other.codes(), count, -128, 127, parallel));
      }
    });
  }
}

}  // namespace
}  // namespace bie::kernels::test
