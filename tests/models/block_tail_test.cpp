// The evaluation epilogue of a product equals torch's operators one after the other, in every layout.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/prelu.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

#include <limits>

#include "bie/ops.h"

namespace bie::ops {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

NormNumbers numbers(std::int64_t channels, bool learned) {
  NormNumbers norm{at::randn({channels}), at::rand({channels}).add_(0.1), {}, {}, 1e-5};
  if (learned) {
    norm.weight = at::randn({channels});
    norm.bias = at::randn({channels});
  }
  return norm;
}

at::Tensor by_torch(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut, const TailActivation& act,
                    std::int64_t pool) {
  at::Tensor y = x;
  if (norm.mean.defined())
    y = at::batch_norm(x, norm.weight, norm.bias, norm.mean, norm.var, false, 0.1, norm.eps, false);
  if (shortcut.defined()) y = y + shortcut;
  if (act.kind == TailActivation::relu) y = at::relu(y);
  if (act.kind == TailActivation::prelu) y = at::prelu(y, act.slope);
  return pool > 1 ? at::max_pool2d(y, pool) : y;
}

void expect_torch(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut, const TailActivation& act,
                  std::int64_t pool) {
  ASSERT_TRUE(has_block_tail(x, norm, shortcut, act));
  const at::Tensor y = block_tail(x, norm, shortcut, act, pool), expected = by_torch(x, norm, shortcut, act, pool);
  ASSERT_EQ(y.sizes(), expected.sizes());
  EXPECT_EQ(y.suggest_memory_format(), x.suggest_memory_format());
  EXPECT_TRUE(y.allclose(expected, 1e-5, 2e-5, /*equal_nan=*/true))
      << x.sizes() << ", pool " << pool << ", activation " << static_cast<int>(act.kind);
}

const TailActivation activations[] = {
    {TailActivation::none, {}}, {TailActivation::relu, {}}, {TailActivation::prelu, {}}};

TEST(BlockTail, EqualsTorchsOperators) {
  at::manual_seed(1);
  const at::NoGradGuard no_grad;
  for (TailActivation act : activations) {
    for (const float slope : {0.25f, -0.5f, 3.0f}) {
      if (act.kind == TailActivation::prelu) act.slope = at::full({1}, slope);
      for (const bool learned : {false, true})
        for (const bool shortcut : {false, true}) {
          const at::Tensor rows = at::randn({37, 19});
          expect_torch(rows, numbers(19, learned), shortcut ? at::randn({37, 19}) : at::Tensor(), act, 1);
          for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
            for (const std::int64_t pool : {1, 2, 3}) {
              const at::Tensor image = at::randn({3, 18, 9, 11}).contiguous(format);
              const at::Tensor past = shortcut ? at::randn({3, 18, 9, 11}).contiguous(format) : at::Tensor();
              expect_torch(image, numbers(18, learned), past, act, pool);
              if (HasFailure()) return;
            }
        }
    }
  }
  expect_torch(at::randn({2, 5, 4, 4}), {}, {}, {TailActivation::relu, {}}, 2);
  expect_torch(at::randn({0, 5, 4, 4}), numbers(5, true), {}, {TailActivation::relu, {}}, 1);
  expect_torch(at::randn({64, 3, 70, 70}), numbers(3, true), {}, {TailActivation::relu, {}}, 2);  // several tasks
}

TEST(BlockTail, NanAndInfinityGoWhereTorchPutsThem) {
  at::manual_seed(2);
  const at::NoGradGuard no_grad;
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const float value : {nan_value, infinity, -infinity})
      for (TailActivation act : activations) {
        if (act.kind == TailActivation::prelu) act.slope = at::full({1}, 0.25f);
        for (const std::int64_t place : {0, 1, 5, 6, 24}) {
          at::Tensor x = at::randn({2, 4, 6, 6}).contiguous(format);
          x[1][2][place / 6][place % 6].fill_(value);
          expect_torch(x, numbers(4, true), {}, act, 2);
        }
      }
}

TEST(BlockTail, IsForDenseFloatsOfTheCpuWithoutGradients) {
  const NormNumbers norm = numbers(4, true);
  const TailActivation relu{TailActivation::relu, {}};
  const at::Tensor x = at::randn({2, 4, 6, 6});
  EXPECT_FALSE(has_block_tail(x, norm, {}, relu)) << "a gradient may be wanted";
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(has_block_tail(x, norm, {}, relu));
  EXPECT_FALSE(has_block_tail(x.to(at::kHalf), norm, {}, relu));
  EXPECT_FALSE(has_block_tail(x.transpose(2, 3), norm, {}, relu));
  EXPECT_FALSE(has_block_tail(at::randn({4}), norm, {}, relu));
  EXPECT_FALSE(has_block_tail(x, norm, at::randn({2, 4, 6, 5}), relu));
  EXPECT_FALSE(has_block_tail(x, norm, x.contiguous(at::MemoryFormat::ChannelsLast), relu));
  EXPECT_FALSE(has_block_tail(x, norm, {}, {TailActivation::prelu, at::rand({4})})) << "a slope for each channel";
}

}  // namespace
}  // namespace bie::ops
