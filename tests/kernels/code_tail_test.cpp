// Tails up to the next layer's codes, and the signs of thresholds: every kernel gives the formula's values.
#include "bie/kernels/code_tail.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "bie/kernels/block_tail.h"
#include "bie/kernels/sign_threshold.h"
#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// block_tail's formula, one number at a time.
std::vector<float> tail_values(const CodeTailShape& s, const CodeTailCall& c) {
  const std::int64_t out_h = s.height / s.pool, out_w = s.width / s.pool;
  std::vector<float> y;
  for (std::int64_t n = 0; n < s.images; ++n)
    for (std::int64_t channel = 0; channel < s.channels; ++channel)
      for (std::int64_t h = 0; h < out_h; ++h)
        for (std::int64_t w = 0; w < out_w; ++w) {
          float most = -infinity;
          for (std::int64_t i = 0; i < s.pool; ++i)
            for (std::int64_t j = 0; j < s.pool; ++j) {
              const std::int64_t row = (n * s.channels + channel) * s.height + h * s.pool + i;
              const auto at = static_cast<std::size_t>(row * s.width + w * s.pool + j);
              const float product = c.x[at] * (c.scale == nullptr ? 1.0f : c.scale[channel]);
              float v = product + (c.shift == nullptr ? -0.0f : c.shift[channel]);
              if (c.add != nullptr) v = v + c.add[at];
              if (v < 0) v = c.cuts ? 0.0f : v * c.slope;
              most = i + j == 0 || v > most ? v : most;
            }
          y.push_back(most);
        }
  return y;
}

const std::int64_t sizes[][4] = {{1, 1, 1, 1},   {37, 19, 1, 1}, {3, 17, 9, 11}, {2, 1, 7, 5}, {2, 600, 1, 1},
                                 {1, 33, 6, 31}, {5, 4, 33, 65}, {0, 5, 4, 4},   {3, 0, 4, 4}, {1, 2, 3, 1100}};

TEST(CodeTail, EveryFormOfEveryShape) {
  ReplayableRng rng;
  for (const auto& size : sizes)
    for (const std::int64_t pool : {1, 2, 3, 17})
      for (int form = 0; form < 8; ++form) {
        const CodeTailShape s{size[0], size[1], size[2], size[3], pool};
        if (s.height < pool || s.width < pool) continue;
        const std::int64_t count = s.images * s.channels * s.height * s.width;
        const Elements x = random_elements(Dtype::f32, count, 2, rng), add = random_elements(Dtype::f32, count, 2, rng),
                       scale = random_elements(Dtype::f32, s.channels, 1, rng),
                       shift = random_elements(Dtype::f32, s.channels, 1, rng),
                       bias = random_elements(Dtype::f32, s.channels, 1, rng);
        CodeTailCall call{};
        call.x = x.floats();
        call.add = form % 2 == 1 ? add.floats() : nullptr;
        call.scale = form < 6 ? scale.floats() : nullptr;
        call.shift = form < 6 ? shift.floats() : nullptr;
        call.slope = form == 4 ? -0.5f : 0.25f;
        call.cuts = form % 3 == 0;
        call.bias = form == 5 ? nullptr : bias.floats();
        call.step = 0.013f;
        const std::vector<float> values = tail_values(s, call);
        const std::int64_t pixels = (s.height / pool) * (s.width / pool);
        for_every_pool([&](const Parallel& parallel) {
          for_every_kernel(code_tail_table(), [&](const CodeTailKernel& kernel) {
            std::vector<float> floats(values.size() + 1, 77.0f);
            call.dtype = Dtype::f32;
            call.y = floats.data();
            ASSERT_EQ(kernel.run(s, call, parallel), Status::ok);
            for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(floats[i], values[i]) << i;
            ASSERT_EQ(floats.back(), 77.0f);
            for (const int bits : {1, 4, 8}) {
              std::vector<std::int8_t> codes(values.size() + 1, 55);
              call.dtype = Dtype::s8;
              call.y = codes.data();
              call.signs = bits == 1;
              call.lo = bits == 4 ? -8 : -128;
              call.hi = bits == 4 ? 7 : 127;
              ASSERT_EQ(kernel.run(s, call, parallel), Status::ok);
              for (std::size_t i = 0; i < values.size(); ++i) {
                const std::int64_t c = static_cast<std::int64_t>(i) / pixels % s.channels;
                const float xs = values[i] + (call.bias == nullptr ? 0.0f : call.bias[c]);
                const float code = std::fmin(std::fmax(std::rint(xs / call.step), static_cast<float>(call.lo)),
                                             static_cast<float>(call.hi));
                ASSERT_EQ(codes[i], bits == 1 ? (xs >= 0 ? 1 : -1) : static_cast<int>(code)) << i << ", " << bits;
              }
              ASSERT_EQ(codes.back(), 55);
            }
          });
        });
        if (HasFatalFailure()) return;
      }
}

TEST(CodeTail, GivesTheBitsOfBlockTail) {
  ReplayableRng rng;
  const BlockTailShape s{3, 19, 8, 10, 2, ImageLayout::nchw};
  const std::int64_t count = 3 * 19 * 8 * 10;
  const Elements x = random_elements(Dtype::f32, count, 2, rng), mean = random_elements(Dtype::f32, 19, 1, rng),
                 weight = random_elements(Dtype::f32, 19, 1, rng), bias = random_elements(Dtype::f32, 19, 1, rng);
  Elements var = random_elements(Dtype::f32, 19, 1, rng);
  for (int c = 0; c < 19; ++c) var.set(c, std::fabs(var.get(c)) + 0.1f);
  std::vector<float> a(19), b(19), wanted(count / 4), y(count / 4);
  norm_numbers(19, mean.floats(), var.floats(), weight.floats(), bias.floats(), 1e-5f, a.data(), b.data());
  const BlockTailCall tail{x.floats(),    nullptr, mean.floats(), var.floats(), weight.floats(),
                           bias.floats(), 1e-5f,   0.25f,         false,        wanted.data()};
  ASSERT_EQ(block_tail_table().back().run(s, tail, serial()), Status::ok);
  for_every_kernel(code_tail_table(), [&](const CodeTailKernel& kernel) {
    CodeTailCall call{x.floats(), nullptr, a.data(), b.data(), 0.25f, false, y.data(),
                      Dtype::f32, nullptr, 1,        0,        0,     false};
    ASSERT_EQ(kernel.run({3, 19, 8, 10, 2}, call, serial()), Status::ok);
    EXPECT_EQ(y, wanted);
  });
}

TEST(CodeTail, RefusesCodesOfNoNumber) {
  ReplayableRng rng;
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity})
    for (const bool signs : {false, true})
      for (const std::int64_t place : {0, 7, 29}) {
        Elements x = random_elements(Dtype::f32, 30, 2, rng);
        x.set(place, odd);
        std::vector<std::int8_t> y(30);
        CodeTailCall call{x.floats(), nullptr, nullptr, nullptr, 1, false, y.data(),
                          Dtype::s8,  nullptr, 0.1f,    -8,      7, signs};
        for (const CodeTailShape& s : {CodeTailShape{2, 3, 1, 5, 1}, {10, 3, 1, 1, 1}})
          for_every_kernel(code_tail_table(), [&](const CodeTailKernel& kernel) {
            EXPECT_EQ(kernel.run(s, call, serial()), Status::not_finite);
          });
      }
}

TEST(CodeTail, WrongArguments) {
  std::vector<float> x(8);
  std::vector<std::int8_t> y(8, 5);
  for_every_kernel(code_tail_table(), [&](const CodeTailKernel& kernel) {
    CodeTailCall call{x.data(), nullptr, nullptr, nullptr, 1, false, y.data(), Dtype::s8, nullptr, 1, -8, 7, false};
    for (const CodeTailShape& s :
         {CodeTailShape{-1, 2, 2, 2, 1}, {1, -2, 2, 2, 1}, {1, 2, -2, 2, 1}, {1, 2, 2, -2, 1}, {1, 2, 2, 2, 0}})
      EXPECT_EQ(kernel.run(s, call, serial()), Status::bad_shape);
    for (const float step : {0.0f, -1.0f, infinity}) {
      call.step = step;
      EXPECT_EQ(kernel.run({1, 2, 2, 2, 1}, call, serial()), Status::bad_scale);
    }
    call.dtype = Dtype::bits;
    EXPECT_EQ(kernel.run({1, 2, 2, 2, 1}, call, serial()), Status::bad_dtype);
    for (const std::int8_t code : y) EXPECT_EQ(code, 5);
  });
}

TEST(SignThreshold, EveryShapeAndBothDtypes) {
  ReplayableRng rng;
  for (const auto& size : sizes)
    for (const std::int64_t pool : {1, 2, 3}) {
      const SignThresholdShape s{size[0], size[1], size[2], size[3], pool};
      if (s.height < pool || s.width < pool) continue;
      const auto count = static_cast<std::size_t>(s.images * s.channels * s.height * s.width);
      std::vector<std::int32_t> acc(count), at(static_cast<std::size_t>(s.channels));
      std::vector<std::uint8_t> flip(at.size());
      for (auto& v : acc) v = static_cast<std::int32_t>(rng.between(-5, 5));
      for (auto& v : at) v = static_cast<std::int32_t>(rng.between(-4, 5));
      for (auto& v : flip) v = static_cast<std::uint8_t>(rng.between(0, 1));
      if (!at.empty()) at[0] = std::numeric_limits<std::int32_t>::min();
      std::vector<int> wanted;
      for (std::int64_t i = 0; i < s.images * s.channels; ++i)
        for (std::int64_t h = 0; h < s.height / pool; ++h)
          for (std::int64_t w = 0; w < s.width / pool; ++w) {
            const auto c = static_cast<std::size_t>(i % s.channels);
            bool any = false;
            for (std::int64_t p = 0; p < pool * pool; ++p) {
              const std::int64_t row = i * s.height + h * pool + p / pool;
              any = any ||
                    (acc[static_cast<std::size_t>(row * s.width + w * pool + p % pool)] >= at[c]) != (flip[c] == 1);
            }
            wanted.push_back(any ? 1 : -1);
          }
      for_every_pool([&](const Parallel& parallel) {
        for_every_kernel(sign_threshold_table(), [&](const SignThresholdKernel& kernel) {
          std::vector<std::int8_t> y(wanted.size() + 1, 55);
          ASSERT_EQ(kernel.run(s, {acc.data(), at.data(), flip.data(), y.data(), Dtype::s8}, parallel), Status::ok);
          for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(y[i], wanted[i]) << i;
          ASSERT_EQ(y.back(), 55);
          const std::int64_t row = row_bytes(Dtype::bits, s.channels);
          std::vector<std::uint8_t> packed(static_cast<std::size_t>(s.images * row) + 1, 0xa5);
          const Status status =
              kernel.run(s, {acc.data(), at.data(), flip.data(), packed.data(), Dtype::bits}, parallel);
          if (s.height != 1 || s.width != 1 || pool != 1) {
            ASSERT_EQ(status, Status::bad_shape) << "bits are rows of features";
            return;
          }
          ASSERT_EQ(status, Status::ok);
          for (std::int64_t n = 0; n < s.images; ++n)
            for (std::int64_t c = 0; c < 8 * row; ++c) {
              const int bit = packed[static_cast<std::size_t>(n * row + c / 8)] >> c % 8 & 1;
              ASSERT_EQ(bit, c < s.channels && wanted[static_cast<std::size_t>(n * s.channels + c)] > 0 ? 1 : 0);
            }
          ASSERT_EQ(packed.back(), 0xa5);
        });
      });
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace bie::kernels::test
