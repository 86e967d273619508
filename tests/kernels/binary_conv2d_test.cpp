// b1xb1 convolution: the common sweeps with both kinds of padding, and what only signs have.
#include "bie/kernels/binary_conv2d.h"

#include "conv2d_sweep.h"
#include "formulas.h"

namespace bie::kernels::test {
namespace {

constexpr Conv2dWidth minus_one = {"b1xb1", Dtype::bits, -1, 1, max_k_b1, b1xb1_conv2d_table, -1};
constexpr Conv2dWidth zero = {"b1xb1_padded_with_zero", Dtype::bits, -1, 1, max_k_b1, b1xb1_conv2d_table, 0};

// Both zeros are +1, whether they come as such or as the sum of an activation and its negative.
TEST(BinaryConv2d, ZerosOfBothSignsCountAsPlusOne) {
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc})
      for (const float bias : {0.0f, -0.0f, 2.5f})
        for (const bool with_bias : {false, true}) {
          Conv2dProblem p =
              blank_conv2d(minus_one, {{1, 37, 2, 3, 3, 2, 3}, in, Dtype::s32, layout, layout, with_bias});
          p.weight.assign(p.weight.size(), 0xff);
          for (std::int64_t i = 0; i < 37 * 6; ++i)
            write_float(p.x.data(), in, i, with_bias && bias > 0 ? -bias : i % 2 == 0 ? 0.0f : -0.0f);
          p.bias.assign(p.bias.size(), bias);
          expect_every_kernel(p, std::vector<std::int32_t>(3, 37 * 6));
        }
}

TEST(BinaryConv2d, TheSmallestNegativeNumberIsMinusOne) {
  for (const Dtype in : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
      Conv2dProblem p = blank_conv2d(minus_one, {{1, 37, 2, 3, 3, 2, 3}, in, Dtype::s32, layout, layout});
      p.weight.assign(p.weight.size(), 0xff);
      const float least = in == Dtype::f32 ? -0x1p-149f : in == Dtype::bf16 ? -0x1p-133f : -0x1p-24f;
      for (std::int64_t i = 0; i < 37 * 6; ++i) write_float(p.x.data(), in, i, least);
      expect_every_kernel(p, std::vector<std::int32_t>(3, -37 * 6));
    }
}

// A single pixel in a wide border: every output is one tap of the weight and, with -1 around it, the rest negated.
TEST(BinaryConv2d, WhatLiesOutsideIsMinusOneOrNothing) {
  for (const Conv2dWidth& width : {minus_one, zero}) {
    Conv2dProblem p = blank_conv2d(width, {{1, 5, 1, 1, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1, width.pad_code}, Dtype::s8});
    p.x.assign(p.x.size(), 1);
    p.weight.assign(p.weight.size(), 0xff);
    std::fill(p.weight.begin(), p.weight.begin() + row_bytes(Dtype::bits, 45), 0x00);
    const int outside = width.pad_code * 5 * 8;
    expect_every_kernel(p, {-5 - outside, 5 + outside});
  }
}

// All bits differ or none, over more words than a byte can count.
TEST(BinaryConv2d, LongRunsOfEqualAndOppositeSigns) {
  const std::int64_t channels = 40001;
  Conv2dProblem p = blank_conv2d(minus_one, {{2, channels, 2, 2, 2, 2, 2}, Dtype::s8});
  for (std::size_t i = 0; i < p.x.size(); ++i) p.x[i] = i < p.x.size() / 2 ? 0xff : 1;
  std::fill(p.weight.begin() + row_bytes(Dtype::bits, 4 * channels), p.weight.end(), 0xff);
  const std::int32_t all = static_cast<std::int32_t>(4 * channels);
  expect_every_kernel(p, {all, -all, -all, all});
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Binary, Conv2dRows, testing::Values(minus_one, zero), name_of);
INSTANTIATE_TEST_SUITE_P(Binary, Conv2dRefusals, testing::Values(minus_one, zero), name_of);

}  // namespace bie::kernels::test
