// Convolutions with the tail behind them: every kernel gives the formula's floats and codes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "bie/kernels/binary_conv2d.h"
#include "bie/kernels/float_gemm.h"
#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "conv2d_sweep.h"
#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

constexpr Conv2dWidth widths[] = {{"s8xs8", Dtype::s8, -128, 127, max_k_s8, s8xs8_conv2d_table},
                                  {"s4xs4", Dtype::s4, -8, 7, max_k_s4, s4xs4_conv2d_table},
                                  {"b1xb1", Dtype::bits, 0, 1, max_k_b1, b1xb1_conv2d_table, 0},
                                  {"b1xb1_pads_signs", Dtype::bits, 0, 1, max_k_b1, b1xb1_conv2d_table, -1}};

/// Numbers of a tail of `channels` over NHWC images of `count` elements.
struct TailCase {
  Elements scale, shift, bias, add;
  Conv2dTail tail{};

  TailCase(int form, std::int64_t channels, std::int64_t count, ReplayableRng& rng)
      : scale(random_elements(Dtype::f32, channels, 1, rng)),
        shift(random_elements(Dtype::f32, channels, 1, rng)),
        bias(random_elements(Dtype::f32, channels, 1, rng)),
        add(random_elements(Dtype::f32, count, 2, rng)) {
    tail.scale = form == 5 ? nullptr : scale.floats();
    tail.shift = form == 6 ? nullptr : shift.floats();
    tail.add = form % 2 == 1 ? add.floats() : nullptr;
    tail.slope = form == 2 ? -0.5f : form == 4 ? 1.0f : 0.25f;
    tail.cuts = form % 3 == 0;
    tail.bias = form == 3 ? nullptr : bias.floats();
    const int bits = form % 3 == 0 ? 8 : form % 3 == 1 ? 4 : 1;
    tail.step = rng.one_of({0.013f, 0.25f, 3.0f, 1e-38f, 1e30f});
    tail.lo = bits == 4 ? -8 : -128;
    tail.hi = bits == 4 ? 7 : 127;
    tail.signs = bits == 1;
  }

  float value(float y, std::int64_t channel, std::int64_t at) const {
    float v = y * (tail.scale == nullptr ? 1.0f : scale.get(channel));
    v = v + (tail.shift == nullptr ? -0.0f : shift.get(channel));
    if (tail.add != nullptr) v = v + add.get(at);
    return v < 0 ? (tail.cuts ? 0.0f : v * tail.slope) : v;
  }
  int code(float v, std::int64_t channel) const {
    const float xs = v + (tail.bias == nullptr ? 0.0f : bias.get(channel));
    if (tail.signs) return xs >= 0 ? 1 : -1;
    return static_cast<int>(
        std::fmin(std::fmax(std::rint(xs / tail.step), static_cast<float>(tail.lo)), static_cast<float>(tail.hi)));
  }

  /// run(tail) writes floats, codes, or both, and nothing else; y is what the tail is of, NHWC.
  template <class Run>
  void expect(const std::vector<float>& y, std::int64_t channels, const Run& run) {
    for (const int wanted : {1, 2, 3}) {
      std::vector<float> floats(y.size() + 1, 77.0f);
      std::vector<std::int8_t> codes(y.size() + 1, 55);
      tail.v = (wanted & 1) != 0 ? floats.data() : nullptr;
      tail.codes = (wanted & 2) != 0 ? codes.data() : nullptr;
      ASSERT_EQ(run(tail), Status::ok);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::int64_t at = static_cast<std::int64_t>(i), channel = at % channels;
        const float v = value(y[i], channel, at);
        ASSERT_EQ(bits_of(floats[i]), bits_of((wanted & 1) != 0 ? v : 77.0f)) << i;
        ASSERT_EQ(codes[i], (wanted & 2) != 0 ? code(v, channel) : 55) << i << ", step " << tail.step;
      }
      ASSERT_EQ(floats.back(), 77.0f);
      ASSERT_EQ(codes.back(), 55);
    }
  }

  static std::uint32_t bits_of(float v) {
    std::uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
  }
};

/// check(parallel) on several threads for the first forms, else on one.
template <class Check>
void on_pools(int form, const Check& check) {
  if (form < 2)
    for_every_pool(check);
  else
    check(serial());
}

std::vector<Conv2dShape> shapes() {
  std::vector<Conv2dShape> all = {{1, 16, 9, 13, 16, 3, 3, 1, 1, 1, 1}, {2, 5, 7, 7, 33, 3, 3, 2, 2, 1, 1},
                                  {5, 12, 3, 5, 70, 2, 3, 1, 2, 0, 1},  {3, 64, 6, 4, 9, 1, 1},
                                  {4, 8, 8, 8, 130, 3, 3, 1, 1, 1, 1},  {1, 3, 20, 31, 47, 5, 3, 2, 1, 2, 0},
                                  {2, 32, 11, 6, 64, 3, 3, 1, 1, 2, 2}, {0, 4, 5, 5, 6, 3, 3}};
  all.push_back({2, 12, 9, 8, 20, 3, 3, 1, 1, 1, 1});
  all.back().groups = 4;
  all.push_back({2, 7, 9, 12, 17, 3, 3, 1, 1, 2, 2});
  all.back().dil_h = all.back().dil_w = 2;
  return all;
}

TEST_P(Conv2dTails, EveryFormOfEveryShape) {
  ReplayableRng rng;
  const Conv2dWidth& width = GetParam();
  for (const Conv2dShape& shape : shapes())
    for (int form = 0; form < 7; ++form) {
      Conv2dCase c;
      c.shape = shape;
      c.in = form % 2 == 0 ? Dtype::s8 : Dtype::f32;
      c.in_layout = form % 4 < 2 ? ImageLayout::nhwc : ImageLayout::nchw;
      c.with_bias = form > 3;
      Conv2dProblem p = random_conv2d(width, c, rng);
      p.scale = rng.one_of({0.37f, -1e-3f});
      const Conv2dShape& s = p.c.shape;
      const std::vector<std::int32_t> sums = expected_sums(p);
      const std::int64_t plane = p.out_h() * p.out_w();
      std::vector<float> y(sums.size());
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i), pixel = at / s.out_c;
        const std::int64_t from = (pixel / plane * s.out_c + at % s.out_c) * plane + pixel % plane;
        y[i] = static_cast<float>(sums[static_cast<std::size_t>(from)]) * p.scale;
      }
      TailCase of(form, s.out_c, static_cast<std::int64_t>(y.size()), rng);
      on_pools(form, [&](const Parallel& parallel) {
        for_every_kernel(width.table(), [&](const Conv2dKernel& kernel) {
          SCOPED_TRACE(testing::Message() << p.c << ", form " << form);
          const PackedMemory packed(kernel.packed_bytes(s));
          kernel.prepack(p.weight.data(), s, packed.get(), parallel);
          of.expect(y, s.out_c, [&](const Conv2dTail& tail) {
            return kernel.run(s, p.input(), packed.get(), {nullptr, Dtype::f32, ImageLayout::nhwc, p.scale, &tail},
                              parallel);
          });
        });
      });
      if (HasFatalFailure()) return;
    }
}

TEST(FloatConv2d, TailsOfWhatItGives) {
  ReplayableRng rng;
  for (const Conv2dShape& s : shapes())
    for (int form = 0; form < 7; ++form) {
      const Elements x = random_elements(Dtype::f32, s.batch * s.in_c * s.in_h * s.in_w, 2, rng),
                     w = random_elements(Dtype::f32, s.out_c * s.depth(), 2, rng),
                     bias = random_elements(Dtype::f32, s.out_c, 2, rng);
      const float* const own = form == 1 ? nullptr : bias.floats();
      const std::int64_t plane = s.out_h() * s.out_w(), count = s.batch * s.out_c * plane;
      std::vector<float> planes(static_cast<std::size_t>(count)), y(planes.size());
      const FloatConv2dKernel& reference = float_conv2d_table().back();
      ASSERT_EQ(reference.run(s, x.floats(), w.floats(), own, planes.data(), serial()), Status::ok);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t pixel = i / s.out_c;
        const std::int64_t from = (pixel / plane * s.out_c + i % s.out_c) * plane + pixel % plane;
        y[static_cast<std::size_t>(i)] = planes[static_cast<std::size_t>(from)];
      }
      TailCase of(form, s.out_c, count, rng);
      on_pools(form, [&](const Parallel& parallel) {
        for_every_kernel(float_conv2d_table(), [&](const FloatConv2dKernel& kernel) {
          const PackedMemory packed(kernel.packed_bytes(s));
          kernel.prepack(w.floats(), s, static_cast<float*>(packed.get()));
          of.expect(y, s.out_c, [&](const Conv2dTail& tail) {
            return kernel.run_tailed(s, x.floats(), static_cast<const float*>(packed.get()), own, tail, parallel);
          });
        });
      });
      if (HasFatalFailure()) return;
    }
}

TEST_P(Conv2dTails, WhatTheyRefuse) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  ReplayableRng rng;
  Conv2dCase c;
  c.shape = {1, 4, 5, 5, 6, 3, 3};
  const Conv2dWidth& width = GetParam();
  const Conv2dProblem p = random_conv2d(width, c, rng);
  const Conv2dShape& s = p.c.shape;
  for_every_kernel(width.table(), [&](const Conv2dKernel& kernel) {
    const PackedMemory packed(kernel.packed_bytes(s));
    kernel.prepack(p.weight.data(), s, packed.get(), serial());
    std::vector<std::int8_t> codes(static_cast<std::size_t>(p.out_elements()));
    std::vector<float> shift(6, 1.0f);
    Conv2dTail tail{};
    tail.shift = shift.data();
    tail.codes = codes.data();
    tail.step = 1;
    tail.lo = -8;
    tail.hi = 7;
    const auto run = [&](Dtype dtype, ImageLayout layout) {
      return kernel.run(s, p.input(), packed.get(), {nullptr, dtype, layout, p.scale, &tail}, serial());
    };
    EXPECT_EQ(run(Dtype::f32, ImageLayout::nhwc), Status::ok);
    EXPECT_EQ(run(Dtype::f32, ImageLayout::nchw), Status::bad_dtype);
    EXPECT_EQ(run(Dtype::s32, ImageLayout::nhwc), Status::bad_dtype);
    for (const float step : {0.0f, -1.0f, infinity}) {
      tail.step = step;
      EXPECT_EQ(run(Dtype::f32, ImageLayout::nhwc), Status::bad_scale);
    }
    tail.step = 1;
    shift[5] = infinity;
    EXPECT_EQ(run(Dtype::f32, ImageLayout::nhwc), Status::not_finite);
    shift[5] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(run(Dtype::f32, ImageLayout::nhwc), Status::not_finite);
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWidth, Conv2dTails, testing::ValuesIn(widths),
                         [](const auto& width) { return name_of(width); });

}  // namespace
}  // namespace bie::kernels::test
