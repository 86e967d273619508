// block_tail: every kernel gives the formula's bits in NCHW and NHWC, whatever the number of threads.
#include "bie/kernels/block_tail.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

struct Tail {
  BlockTailShape shape;
  Elements x, add, mean, var, weight, bias;
  bool adds = false, normalises = true, learned = true;
  float slope = 0.25f;
  bool cuts = false;

  Tail(const BlockTailShape& s, ReplayableRng& rng)
      : shape(s),
        x(random_elements(Dtype::f32, size(), 2, rng)),
        add(random_elements(Dtype::f32, size(), 2, rng)),
        mean(random_elements(Dtype::f32, s.channels, 1, rng)),
        var(random_elements(Dtype::f32, s.channels, 1, rng)),
        weight(random_elements(Dtype::f32, s.channels, 1, rng)),
        bias(random_elements(Dtype::f32, s.channels, 1, rng)) {
    for (std::int64_t c = 0; c < s.channels; ++c) var.set(c, std::fabs(var.get(c)) + 0.1f);
  }
  std::int64_t size() const { return shape.images * shape.channels * shape.height * shape.width; }
  BlockTailCall call(float* y) const {
    return {x.floats(),
            adds ? add.floats() : nullptr,
            normalises ? mean.floats() : nullptr,
            normalises ? var.floats() : nullptr,
            normalises && learned ? weight.floats() : nullptr,
            normalises && learned ? bias.floats() : nullptr,
            1e-5f,
            slope,
            cuts,
            y};
  }
  /// One element before the pool, each operation rounded to float32.
  float value(std::int64_t at, std::int64_t channel) const {
    float a = 1, b = 0;
    if (normalises) {
      const float root =
          f32(std::sqrt(static_cast<double>(f32(static_cast<double>(var.get(channel)) + static_cast<double>(1e-5f)))));
      a = f32(f32(1 / static_cast<double>(root)) * (learned ? static_cast<double>(weight.get(channel)) : 1.0));
      b = f32((learned ? static_cast<double>(bias.get(channel)) : 0.0) -
              static_cast<double>(f32(static_cast<double>(mean.get(channel)) * static_cast<double>(a))));
    }
    float v =
        f32(static_cast<double>(f32(static_cast<double>(x.get(at)) * static_cast<double>(a))) + static_cast<double>(b));
    if (adds) v = f32(static_cast<double>(v) + static_cast<double>(add.get(at)));
    if (std::isnan(v) || v >= 0) return v;
    return cuts ? 0.0f : f32(static_cast<double>(v) * static_cast<double>(slope));
  }
  std::vector<float> expected() const {
    const BlockTailShape& s = shape;
    const std::int64_t out_h = s.height / s.pool, out_w = s.width / s.pool;
    const auto place = [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t height,
                           std::int64_t width) {
      return s.layout == ImageLayout::nhwc ? ((n * height + h) * width + w) * s.channels + c
                                           : ((n * s.channels + c) * height + h) * width + w;
    };
    std::vector<float> y(static_cast<std::size_t>(s.images * s.channels * out_h * out_w));
    for (std::int64_t n = 0; n < s.images; ++n)
      for (std::int64_t c = 0; c < s.channels; ++c)
        for (std::int64_t h = 0; h < out_h; ++h)
          for (std::int64_t w = 0; w < out_w; ++w) {
            float most = -std::numeric_limits<float>::infinity();
            for (std::int64_t i = 0; i < s.pool; ++i)
              for (std::int64_t j = 0; j < s.pool; ++j) {
                const float v = value(place(n, c, h * s.pool + i, w * s.pool + j, s.height, s.width), c);
                // Among equal values, zeros of both signs included, the first one stays.
                if (std::isnan(v) || v > most || (i == 0 && j == 0)) most = std::isnan(most) ? most : v;
              }
            y[static_cast<std::size_t>(place(n, c, h, w, out_h, out_w))] = most;
          }
    return y;
  }
  void expect_every_kernel() const {
    const std::vector<float> wanted = expected();
    for_every_pool([&](const Parallel& parallel) {
      for_every_kernel(block_tail_table(), [&](const BlockTailKernel& kernel) {
        std::vector<float> y(wanted.size() + 2, 77.0f);
        ASSERT_EQ(kernel.run(shape, call(y.data() + 1), parallel), Status::ok);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          if (std::isnan(wanted[i]))
            ASSERT_TRUE(std::isnan(y[i + 1])) << i;
          else
            ASSERT_EQ(y[i + 1], wanted[i]) << i << " of " << shape.images << "x" << shape.channels << "x"
                                           << shape.height << "x" << shape.width << ", pool " << shape.pool;
        }
        ASSERT_EQ(y.front(), 77.0f);
        ASSERT_EQ(y.back(), 77.0f);
      });
    });
  }
};

TEST(BlockTail, EveryFormOfEveryShape) {
  ReplayableRng rng;
  const std::int64_t sizes[][4] = {{1, 1, 1, 1},   {37, 19, 1, 1}, {3, 17, 9, 11}, {2, 1, 7, 5},
                                   {1, 33, 6, 31}, {5, 4, 33, 65}, {0, 5, 4, 4},   {3, 0, 4, 4}};
  for (const auto& size : sizes)
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc})
      for (const std::int64_t pool : {1, 2, 3})
        for (int form = 0; form < 8; ++form) {
          if (pool > 1 && (size[2] < pool || size[3] < pool)) continue;
          Tail tail({size[0], size[1], size[2], size[3], pool, layout}, rng);
          tail.adds = form % 2 == 1;
          tail.normalises = form != 2 && form != 3;
          tail.learned = form < 6;
          tail.cuts = form % 3 == 0;
          tail.slope = form == 4 ? 3.0f : form == 5 ? -0.5f : 0.25f;
          tail.expect_every_kernel();
          if (HasFailure()) return;
        }
}

TEST(BlockTail, NanAndInfinityStay) {
  ReplayableRng rng;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity})
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc})
      for (const std::int64_t pool : {1, 2, 3})
        for (const bool cuts : {false, true}) {
          Tail tail({2, 9, 6, 7, pool, layout}, rng);
          tail.cuts = cuts;
          for (int i = 0; i < 40; ++i) tail.x.set(rng.between(0, tail.size() - 1), odd);
          tail.expect_every_kernel();
          if (HasFailure()) return;
        }
}

TEST(BlockTail, WrongArguments) {
  ReplayableRng rng;
  const Tail tail({1, 2, 2, 2, 1, ImageLayout::nchw}, rng);
  for_every_kernel(block_tail_table(), [&](const BlockTailKernel& kernel) {
    std::vector<float> y(8, 5.0f);
    for (const BlockTailShape& shape : {BlockTailShape{-1, 2, 2, 2, 1, ImageLayout::nchw},
                                        {1, -2, 2, 2, 1, ImageLayout::nchw},
                                        {1, 2, -2, 2, 1, ImageLayout::nhwc},
                                        {1, 2, 2, -2, 1, ImageLayout::nhwc},
                                        {1, 2, 2, 2, 0, ImageLayout::nchw}})
      EXPECT_EQ(kernel.run(shape, tail.call(y.data()), serial()), Status::bad_shape);
    for (const float value : y) EXPECT_EQ(value, 5.0f);
  });
}

}  // namespace
}  // namespace bie::kernels::test
