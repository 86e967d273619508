// Products of floats in a written order: every kernel, number of rows and of threads gives the same bits.
#include "bie/kernels/float_gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "bie/kernels/planes.h"
#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

TEST(FloatGemm, EverySizeInTheWrittenOrder) {
  ReplayableRng rng;
  for (const auto& sizes : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1},
                                                                    {3, 17, 5},
                                                                    {4, 16, 64},
                                                                    {5, 33, 31},
                                                                    {65, 10, 300},
                                                                    {0, 3, 4},
                                                                    {2, 3, 0},
                                                                    {31, 65, 7},
                                                                    {270, 35, 530},
                                                                    {13, 35, 530},
                                                                    {2, 0, 3}}) {
    const std::int64_t m = sizes[0], n = sizes[1], k = sizes[2];
    const Elements x = random_elements(Dtype::f32, m * k, 2, rng), w = random_elements(Dtype::f32, n * k, 2, rng),
                   bias = random_elements(Dtype::f32, n, 2, rng);
    for (const bool biased : {false, true})
      for_every_pool([&](const Parallel& parallel) {
        for_every_kernel(float_gemm_table(), [&](const FloatGemmKernel& kernel) {
          const PackedMemory packed(kernel.packed_bytes(n, k));
          kernel.prepack(w.floats(), n, k, static_cast<float*>(packed.get()));
          std::vector<float> y(static_cast<std::size_t>(m * n) + 1, 77.0f);
          ASSERT_EQ(kernel.run({m, n, k}, x.floats(), static_cast<float*>(packed.get()),
                               biased ? bias.floats() : nullptr, y.data(), parallel),
                    Status::ok);
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              float sum = 0;
              for (std::int64_t at = 0; at < k; ++at) sum = std::fma(x.get(i * k + at), w.get(j * k + at), sum);
              if (biased) sum = sum + bias.get(j);
              ASSERT_EQ(y[static_cast<std::size_t>(i * n + j)], sum) << i << ", " << j << " of " << m << "x" << n;
            }
          ASSERT_EQ(y.back(), 77.0f);
        });
      });
    if (HasFatalFailure()) return;
  }
}

TEST(FloatConv2d, EveryGeometryInTheWrittenOrder) {
  ReplayableRng rng;
  std::vector<Conv2dShape> shapes = {{2, 3, 9, 11, 5, 3, 3},  {1, 1, 28, 28, 6, 5, 5}, {1, 4, 7, 40, 8, 3, 3},
                                     {3, 2, 6, 6, 4, 1, 1},   {1, 3, 20, 37, 7, 7, 3}, {0, 3, 9, 11, 5, 3, 3},
                                     {2, 5, 8, 8, 5, 3, 3},   {1, 6, 33, 63, 6, 3, 3}, {2, 3, 5, 3, 25, 1, 1},
                                     {1, 7, 4, 4, 31, 1, 1},  {1, 3, 31, 18, 3, 5, 2}, {2, 3, 9, 7, 14, 1, 1},
                                     {1, 2, 17, 16, 9, 2, 2}, {1, 2, 1, 1, 13, 1, 1}};
  shapes[0].pad_h = shapes[0].pad_w = 1;
  shapes[2].stride_h = 2, shapes[2].pad_w = 2, shapes[2].groups = 2;
  shapes[4].stride_h = shapes[4].stride_w = 2, shapes[4].pad_h = 3, shapes[4].dil_w = 2;
  shapes[6].pad_h = shapes[6].pad_w = 1, shapes[6].groups = 5;
  shapes[7].pad_h = shapes[7].pad_w = 1, shapes[7].groups = 6, shapes[7].stride_h = shapes[7].stride_w = 2;
  shapes[10].stride_h = 3, shapes[10].stride_w = 4, shapes[10].pad_w = 6, shapes[10].dil_h = 3, shapes[10].groups = 3;
  shapes[11].stride_h = 2, shapes[11].stride_w = 5, shapes[11].pad_h = 4;
  for (const Conv2dShape& s : shapes) {
    const std::int64_t depth = s.depth(), out_h = s.out_h(), out_w = s.out_w();
    const Elements x = random_elements(Dtype::f32, s.batch * s.in_c * s.in_h * s.in_w, 2, rng),
                   w = random_elements(Dtype::f32, s.out_c * depth, 2, rng),
                   bias = random_elements(Dtype::f32, s.out_c, 2, rng);
    for_every_pool([&](const Parallel& parallel) {
      for_every_kernel(float_conv2d_table(), [&](const FloatConv2dKernel& kernel) {
        std::vector<float> y(static_cast<std::size_t>(s.batch * s.out_c * out_h * out_w) + 1, 77.0f);
        ASSERT_EQ(kernel.run(s, x.floats(), w.floats(), bias.floats(), y.data(), parallel), Status::ok);
        std::size_t at = 0;
        for (std::int64_t n = 0; n < s.batch; ++n)
          for (std::int64_t o = 0; o < s.out_c; ++o)
            for (std::int64_t oy = 0; oy < out_h; ++oy)
              for (std::int64_t ox = 0; ox < out_w; ++ox, ++at) {
                float sum = 0;
                std::int64_t i = o * depth;
                const std::int64_t first = o / s.group_out() * s.group_in();
                for (std::int64_t c = first; c < first + s.group_in(); ++c)
                  for (std::int64_t ky = 0; ky < s.kernel_h; ++ky)
                    for (std::int64_t kx = 0; kx < s.kernel_w; ++kx, ++i) {
                      const std::int64_t iy = oy * s.stride_h - s.pad_h + ky * s.dil_h;
                      const std::int64_t ix = ox * s.stride_w - s.pad_w + kx * s.dil_w;
                      const bool inside = iy >= 0 && iy < s.in_h && ix >= 0 && ix < s.in_w;
                      sum = std::fma(inside ? x.get(((n * s.in_c + c) * s.in_h + iy) * s.in_w + ix) : 0.0f, w.get(i),
                                     sum);
                    }
                ASSERT_EQ(y[at], sum + bias.get(o)) << at;
              }
        ASSERT_EQ(y.back(), 77.0f);
      });
    });
    if (HasFatalFailure()) return;
  }
}

TEST(FloatConv2d, WrongShapes) {
  Conv2dShape s{1, 4, 5, 5, 6, 3, 3};
  s.groups = 4;
  for_every_kernel(float_conv2d_table(), [&](const FloatConv2dKernel& kernel) {
    EXPECT_EQ(kernel.run(s, nullptr, nullptr, nullptr, nullptr, serial()), Status::bad_shape);
  });
}

TEST(Planes, MeansAddInTheWrittenOrder) {
  ReplayableRng rng;
  for (const std::int64_t count : {1, 5, 16, 49, 64, 100}) {
    const Elements x = random_elements(Dtype::f32, 3 * count, 2, rng);
    for_every_pool([&](const Parallel& parallel) {
      std::vector<float> y(3);
      plane_means(x.floats(), 3, count, y.data(), parallel);
      for (std::int64_t p = 0; p < 3; ++p) {
        float sum[16] = {};
        for (std::int64_t i = 0; i < count; ++i) sum[i % 16] += x.get(p * count + i);
        for (int half = 8; half > 0; half /= 2)
          for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
        EXPECT_EQ(y[static_cast<std::size_t>(p)], sum[0] * (1 / static_cast<float>(count))) << count;
      }
    });
  }
}

TEST(Planes, StridesAndZeros) {
  ReplayableRng rng;
  const StridedPlanes s{2, 3, 5, 4, 2, 5};
  const Elements x = random_elements(Dtype::f32, 2 * 3 * 5 * 4, 2, rng);
  std::vector<float> y(2 * 5 * 3 * 2);
  strided_planes(s, x.floats(), y.data(), serial());
  std::size_t at = 0;
  for (int n = 0; n < 2; ++n)
    for (int c = 0; c < 5; ++c)
      for (int h = 0; h < 3; ++h)
        for (int w = 0; w < 2; ++w, ++at) EXPECT_EQ(y[at], c < 3 ? x.get(((n * 3 + c) * 5 + 2 * h) * 4 + 2 * w) : 0.0f);
}

TEST(Planes, SoftmaxOfLargeNumbers) {
  const std::vector<float> x = {1000, 1000, -1000, 1, 2, 3};
  std::vector<float> y(6);
  softmax_rows(x.data(), 2, 3, y.data());
  EXPECT_FLOAT_EQ(y[0], 0.5f);
  EXPECT_FLOAT_EQ(y[1], 0.5f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_NEAR(y[5], std::exp(3.0) / (std::exp(1.0) + std::exp(2.0) + std::exp(3.0)), 1e-6);
}

}  // namespace
}  // namespace bie::kernels::test
