// The gradients of a quantised activation: gradients to the bit, sums to the last bits of float64 and the same for all
// rows and threads.
#include "bie/kernels/input_grad.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Expected {
  std::vector<float> grad;
  long double sum = 0, size = 0;  ///< of the terms, and of their magnitudes
  void add(float gradient, double term) {
    grad.push_back(gradient);
    sum += term;
    size += std::fabs(term);
  }
};

/// Every kernel on every pool: the gradients' bits, the sum over the denominator within float64, and one sum for all.
template <class Run>
void expect_every_kernel(const Elements& up, const Expected& expected, double denominator, const Run& run) {
  const std::vector<unsigned char> wanted = bytes_of(expected.grad.data(), 4 * expected.grad.size());
  double reference = 0;
  ASSERT_EQ(run(input_grad_table().back(), Elements(up).floats(), &reference, serial()), Status::ok);
  const double sum = static_cast<double>(expected.sum) / denominator;
  // Terms are float32: each may be off by a last bit of it where it is no exact product.
  EXPECT_NEAR(reference, sum, static_cast<double>(expected.size) / denominator * 2e-7);
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(input_grad_table(), [&](const InputGradKernel& kernel) {
      GuardedBytes out(wanted.size());
      if (!up.bytes.empty()) std::memcpy(out.data(), up.bytes.data(), up.bytes.size());
      double grad_scale = -1;
      ASSERT_EQ(run(kernel, reinterpret_cast<float*>(out.data()), &grad_scale, parallel), Status::ok);
      ASSERT_TRUE(same_bytes(wanted, out)) << up.size() << " elements";
      ASSERT_EQ(grad_scale, reference);
    });
  });
}

TEST(InputGrad, Signs) {
  ReplayableRng rng;
  for (const std::int64_t count : element_counts)
    for (const float scale : {0.9f, -0.4f, 1e-3f, 0.0f}) {
      Elements xs = random_elements(Dtype::f32, count, 1, rng);
      const Elements up = random_elements(Dtype::f32, count, 1, rng);
      for (std::int64_t i = 0; i < count; i += 5)  // on the edge, and next to it
        xs.set(i, i % 2 == 0 ? scale : std::nextafter(scale, scale < 0 ? -infinity : infinity));
      const double divisor = scale == 0 ? FLT_MIN : scale;
      Expected expected;
      for (std::int64_t i = 0; i < count; ++i) {
        const float x = xs.get(i), sent = f32(static_cast<double>(up.get(i)) * static_cast<double>(0.7f));
        const bool inside = std::fabs(f32(x / divisor)) <= 1;
        expected.add(inside ? sent : std::copysign(0.0f, sent), inside ? (x > 0) * sent - (x < 0) * sent : 0);
      }
      expect_every_kernel(
          up, expected, 3.5,
          [&](const InputGradKernel& kernel, float* grad, double* grad_scale, const Parallel& parallel) {
            return kernel.sign_backward({count, xs.floats(), grad, 0.7f}, scale, 3.5, grad_scale, parallel);
          });
      if (HasFailure()) return;
    }
}

TEST(InputGrad, Quantisers) {
  ReplayableRng rng;
  for (const std::int64_t count : element_counts)
    for (const float scale : {0.05f, 0.3f, 0.0f})
      for (const CodeBounds& b : {CodeBounds{-128, 127, 0}, CodeBounds{-8, 7, 0}})
        for (const StepRule& rule : {StepRule{true, false, 2.5}, StepRule{false, false, 2.5}, {false, true, 2.5}}) {
          Elements xs = random_elements(Dtype::f32, count, 4, rng);
          const Elements up = random_elements(Dtype::f32, count, 1, rng);
          for (std::int64_t i = 0; i < count; i += 7) xs.set(i, (i % 2 == 0 ? b.lo : b.hi) * scale);
          const double divisor = scale == 0 ? FLT_MIN : scale;
          Expected expected;
          for (std::int64_t i = 0; i < count; ++i) {
            const float v = f32(xs.get(i) / divisor), sent = f32(static_cast<double>(up.get(i)) * 0.5);
            const bool inside = v >= b.lo && v <= b.hi;
            const double code = quantized(v, 1, static_cast<int>(b.lo), static_cast<int>(b.hi));
            const float passed = f32(static_cast<double>(sent) * static_cast<double>(rule.scaled ? scale : 1.0f));
            const float grad = inside ? passed : std::copysign(0.0f, passed);
            const double slope = inside ? f32(code - static_cast<double>(v)) : code;
            expected.add(grad, scale == 0 ? 0 : slope * static_cast<double>(rule.exact ? sent : grad));
          }
          expect_every_kernel(
              up, expected, 2.5,
              [&](const InputGradKernel& kernel, float* grad, double* grad_scale, const Parallel& parallel) {
                return kernel.quantizer_backward({count, xs.floats(), grad, 0.5f}, scale, b, rule, grad_scale,
                                                 parallel);
              });
          if (HasFailure()) return;
        }
}

TEST(InputGrad, WrongArguments) {
  for_every_kernel(input_grad_table(), [](const InputGradKernel& kernel) {
    float xs = 1, up = 2;
    double grad_scale = 3;
    EXPECT_EQ(kernel.sign_backward({-1, &xs, &up, 1}, 1, 1, &grad_scale, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.quantizer_backward({-1, &xs, &up, 1}, 1, {-8, 7, 0}, {true, false, 1}, &grad_scale, serial()),
              Status::bad_shape);
    EXPECT_EQ(up, 2);
    EXPECT_EQ(grad_scale, 3);
  });
}

}  // namespace
}  // namespace bie::kernels::test
