// Kernels on channels-last images give the results of those on planes.
#include <gtest/gtest.h>

#include <vector>

#include "bie/kernels/code_tail.h"
#include "bie/kernels/planes.h"
#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

template <class T>
std::vector<T> channels_last(const T* planes, std::int64_t images, std::int64_t channels, std::int64_t pixels) {
  std::vector<T> made(static_cast<std::size_t>(images * channels * pixels));
  for (std::int64_t n = 0; n < images; ++n)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t p = 0; p < pixels; ++p)
        made[static_cast<std::size_t>((n * pixels + p) * channels + c)] = planes[(n * channels + c) * pixels + p];
  return made;
}

TEST(Pixels, MeansAreThoseOfPlanes) {
  ReplayableRng rng;
  for (const std::int64_t channels : {1, 5, 16, 33})
    for (const std::int64_t count : {1, 5, 16, 49, 100}) {
      const Elements x = random_elements(Dtype::f32, 3 * channels * count, 2, rng);
      const std::vector<float> pixels = channels_last(x.floats(), 3, channels, count);
      std::vector<float> wanted(static_cast<std::size_t>(3 * channels)), y(wanted.size());
      plane_means(x.floats(), 3 * channels, count, wanted.data(), serial());
      for_every_pool([&](const Parallel& parallel) {
        channel_means(pixels.data(), 3, count, channels, y.data(), parallel);
        EXPECT_EQ(y, wanted) << channels << " channels of " << count;
      });
    }
}

TEST(Pixels, StridesAreThoseOfPlanes) {
  ReplayableRng rng;
  for (const StridedPlanes& s :
       {StridedPlanes{2, 3, 5, 4, 2, 5}, StridedPlanes{1, 4, 7, 9, 3, 4}, StridedPlanes{3, 6, 4, 5, 1, 2}}) {
    const std::int64_t out = s.out_height() * s.out_width();
    const Elements x = random_elements(Dtype::f32, s.images * s.channels * s.height * s.width, 2, rng);
    const std::vector<float> pixels = channels_last(x.floats(), s.images, s.channels, s.height * s.width);
    std::vector<float> planes(static_cast<std::size_t>(s.images * s.out_channels * out)), y(planes.size());
    strided_planes(s, x.floats(), planes.data(), serial());
    for_every_pool([&](const Parallel& parallel) {
      strided_pixels(s, pixels.data(), y.data(), parallel);
      EXPECT_EQ(y, channels_last(planes.data(), s.images, s.out_channels, out));
    });
  }
}

TEST(Pixels, LargestAreThoseOfPlanes) {
  ReplayableRng rng;
  const PoolShape shapes[] = {{0, 9, 11, 3, 3, 2, 2, 1, 1, 1, 1},
                              {0, 5, 40, 2, 3, 1, 2, 1, 0, 0, 2},
                              {0, 6, 6, 6, 6, 1, 1, 0, 0, 0, 0},
                              {0, 3, 300, 1, 2, 1, 1, 0, 1, 0, 0}};
  for (PoolShape s : shapes)
    for (const std::int64_t channels : {1, 3, 64, 700, 4099}) {
      s.planes = 2 * channels;
      const std::int64_t out = s.out_height() * s.out_width(), count = s.planes * s.height * s.width;
      if (count > 1 << 21) continue;
      const Elements x = random_elements(Dtype::f32, count, 2, rng);
      const std::vector<float> pixels = channels_last(x.floats(), 2, channels, s.height * s.width);
      std::vector<float> planes(static_cast<std::size_t>(s.planes * out)), y(planes.size());
      max_pool(s, x.floats(), planes.data(), serial());
      for_every_pool([&](const Parallel& parallel) {
        max_pool_pixels(s, 2, channels, pixels.data(), y.data(), parallel);
        EXPECT_EQ(y, channels_last(planes.data(), 2, channels, out)) << channels;
      });
    }
}

TEST(Pixels, LargestCodes) {
  ReplayableRng rng;
  for (const CodePoolShape& s : {CodePoolShape{2, 5, 7, 8, 2}, CodePoolShape{3, 33, 9, 10, 3}}) {
    const std::int64_t out_h = s.height / s.pool, out_w = s.width / s.pool;
    const Elements x = random_elements(Dtype::s8, s.images * s.height * s.width * s.channels, 1, rng);
    for_every_pool([&](const Parallel& parallel) {
      std::vector<std::int8_t> y(static_cast<std::size_t>(s.images * out_h * out_w * s.channels) + 1, 55);
      pool_codes(s, x.codes(), y.data(), parallel);
      std::size_t at = 0;
      for (std::int64_t n = 0; n < s.images; ++n)
        for (std::int64_t h = 0; h < out_h; ++h)
          for (std::int64_t w = 0; w < out_w; ++w)
            for (std::int64_t c = 0; c < s.channels; ++c, ++at) {
              int most = -128;
              for (std::int64_t i = 0; i < s.pool; ++i)
                for (std::int64_t j = 0; j < s.pool; ++j) {
                  const std::int64_t pixel = (n * s.height + h * s.pool + i) * s.width + w * s.pool + j;
                  most = std::max<int>(most, x.codes()[pixel * s.channels + c]);
                }
              ASSERT_EQ(y[at], most) << at;
            }
      EXPECT_EQ(y.back(), 55);
    });
  }
}

TEST(Pixels, TailsAreThoseOfPlanes) {
  ReplayableRng rng;
  for (const std::int64_t pool : {1, 2, 3})
    for (const std::int64_t channels : {1, 5, 64, 700})
      for (int form = 0; form < 8; ++form) {
        CodeTailShape s{2, channels, 7, 6, pool};
        const std::int64_t pixels = s.height * s.width, count = s.images * channels * pixels;
        const std::int64_t out = (s.height / pool) * (s.width / pool);
        const Elements x = random_elements(Dtype::f32, count, 2, rng), add = random_elements(Dtype::f32, count, 2, rng),
                       numbers = random_elements(Dtype::f32, channels, 1, rng);
        CodeTailCall call{};
        call.scale = form < 4 ? numbers.floats() : nullptr;
        call.shift = form == 2 ? numbers.floats() : nullptr;
        call.slope = form == 1 ? 0.25f : 1.0f;
        call.cuts = form == 3;
        call.bias = form % 2 == 0 ? nullptr : numbers.floats();
        call.step = 0.013f;
        call.lo = -128;
        call.hi = 127;
        call.signs = form == 6;
        const std::vector<float> x_pixels = channels_last(x.floats(), 2, channels, pixels);
        const std::vector<float> add_pixels = channels_last(add.floats(), 2, channels, pixels);
        for_every_kernel(code_tail_table(), [&](const CodeTailKernel& kernel) {
          const auto values = [&](bool last, auto zero, Dtype dtype) {
            std::vector<decltype(zero)> y(static_cast<std::size_t>(2 * channels * out));
            s.channels_last = last;
            call.x = last ? x_pixels.data() : x.floats();
            call.add = form != 5 ? nullptr : last ? add_pixels.data() : add.floats();
            call.y = y.data();
            call.dtype = dtype;
            EXPECT_EQ(kernel.run(s, call, serial()), Status::ok);
            return last ? y : channels_last(y.data(), 2, channels, out);
          };
          ASSERT_EQ(values(true, 0.0f, Dtype::f32), values(false, 0.0f, Dtype::f32)) << pool << ", " << form;
          ASSERT_EQ(values(true, std::int8_t{}, Dtype::s8), values(false, std::int8_t{}, Dtype::s8)) << form;
        });
        if (HasFatalFailure()) return;
      }
}

}  // namespace
}  // namespace bie::kernels::test
