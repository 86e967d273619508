// DiodeMix on codes and signs, element by element, with the same uniform numbers (src/ops/random.h); the moments in
// bfloat16; any number of threads.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/random.h"
#include "tests/optim/params.h"

namespace bie::optim::test {
namespace {

using ops::Stream;
using ops::uniform;

std::vector<double> values(const at::Tensor& t) {
  const at::Tensor wide = t.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

double rate(const DiodeMixOptions& o, std::int64_t t) {
  const double count = static_cast<double>(t);
  return o.correct_bias ? o.lr * std::sqrt(1 - std::pow(o.beta2, count)) / (1 - std::pow(o.beta1, count)) : o.lr;
}

TEST(DiodeMixCodes, EveryStepFollowsTheRule) {
  constexpr std::int64_t count = 601;
  constexpr std::uint64_t seed = 0xfedcba9876543210u;
  for (const int bits : {8, 4})
    for (const bool int8_gradient : {false, true}) {
      const DiodeMixOptions o{
          .lr = bits == 8 ? 1.5 : 0.03, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.05};
      const float scale = 0.07f;
      at::Tensor first = at::zeros({3}), q = code_weight(count, bits, 1);
      DiodeMix optimizer({{{first}, {}}, {{codes(q, bits, scale)}, o}}, seed);  // parameter 1 of the optimizer
      std::vector<double> l(count), s(count);
      std::int64_t moved = 0, clamped = 0;
      for (std::int64_t t = 1; t <= 40; ++t) {
        const auto grad_seed = static_cast<std::uint64_t>(100 + t);
        const at::Tensor grad = int8_gradient ? int8_weight(count, grad_seed) : numbers({count}, grad_seed);
        const std::vector<double> before = values(q), gradient = values(grad);
        step(optimizer, q, grad);
        const std::vector<double> after = values(q);
        const Stream stream(seed, 1, static_cast<std::uint64_t>(t));
        const int hi = (1 << (bits - 1)) - 1;
        for (std::int64_t i = 0; i < count; ++i) {
          const auto j = static_cast<std::size_t>(i);
          const double g = gradient[j];
          l[j] = o.beta1 * l[j] + (1 - o.beta1) * g;
          s[j] = o.beta2 * s[j] + (1 - o.beta2) * g * g;
          double w = before[j] * scale;
          w -= rate(o, t) * l[j] / (std::sqrt(s[j]) + o.eps);
          w -= o.lr * o.weight_decay * w;
          const double x = w / scale + uniform(stream.bits(i));
          if (std::fabs(x - std::rint(x)) < 1e-4) continue;  // either neighbour, in float32
          const double wanted = std::clamp(std::floor(x), -hi - 1.0, hi + 0.0);
          ASSERT_EQ(after[j], wanted) << bits << " bits, step " << t << ", element " << i;
          moved += after[j] != before[j];
          clamped += std::floor(x) != wanted;
        }
      }
      EXPECT_GT(moved, 500);
      EXPECT_GT(clamped, 20);
    }
}

TEST(DiodeMixCodes, RoundingIsUnbiased) {
  at::Tensor q = at::zeros({40000}, at::kChar);
  // Adam's first step is lr in size: 0.3 of a code.
  DiodeMix optimizer({{{codes(q, 8, 0.1f)}, {.lr = 0.03, .eps = 0}}});
  step(optimizer, q, at::full({40000}, -2.0));
  EXPECT_NEAR(q.to(at::kDouble).mean().item<double>(), 0.3, 0.01);
  EXPECT_EQ(q.min().item<int>(), 0);
  EXPECT_EQ(q.max().item<int>(), 1);
}

TEST(DiodeMixCodes, ARenewedScaleKeepsTheWeights) {
  for (const int bits : {8, 4}) {
    const float scale = bits == 8 ? 0.02f : 0.2f;
    const at::Tensor start = code_weight(5000, bits, 1);
    at::Tensor q = start.clone();
    Param param = codes(q, bits, scale);
    DiodeMix optimizer({{{param}, {.lr = 0, .renew_scale_every = 3}}});
    const at::Tensor w = q.to(at::kFloat).mul(scale);
    for (int t = 1; t <= 2; ++t) step(optimizer, q, numbers({5000}, 2));
    EXPECT_TRUE(q.equal(start));
    EXPECT_EQ(param.scale_w.item<float>(), scale);
    step(optimizer, q, numbers({5000}, 2));
    const double mean = w.abs().to(at::kDouble).mean().item<double>();
    const float next = static_cast<float>(2 * mean / (bits == 8 ? 11.269 : 5.6345));
    EXPECT_FLOAT_EQ(param.scale_w.item<float>(), next);
    EXPECT_GT(std::fabs(next / scale - 1), 0.05) << "or this test sees nothing";
    const float hi = static_cast<float>((1 << (bits - 1)) - 1);
    const at::Tensor wanted = w.clamp((-hi - 1) * next, hi * next), got = q.to(at::kFloat).mul(next);
    EXPECT_LE(got.sub(wanted).abs().max().item<float>(), next * 1.001f);
    EXPECT_NEAR(got.sub(wanted).mean().item<float>(), 0, 0.02 * next);
    step(optimizer, q, numbers({5000}, 2));
    EXPECT_FLOAT_EQ(param.scale_w.item<float>(), next) << "until the sixth step";
  }
}

TEST(DiodeMixCodes, CodesOfZeroKeepTheirScale) {
  at::Tensor q = at::zeros({9}, at::kChar);
  const Param param = codes(q, 4, 0.5f);
  DiodeMix optimizer({{{param}, {.lr = 0, .renew_scale_every = 1}}});
  step(optimizer, q, at::zeros({9}));
  EXPECT_EQ(param.scale_w.item<float>(), 0.5f);
  EXPECT_TRUE(q.eq(0).all().item<bool>());
}

TEST(DiodeMixBinary, EveryStepFollowsTheRuleFromTheStart) {
  constexpr std::int64_t count = 601;
  constexpr std::uint64_t seed = 7;
  const DiodeMixOptions o{.lr = 1e-3, .beta1 = 0.8, .beta2 = 0.7};
  for (const bool int8_gradient : {false, true}) {
    at::Tensor first = at::zeros({3}), w = int8_weight(count, 1);
    DiodeMix optimizer({{{first, signs(w)}, o}}, seed);
    std::vector<double> l(count), s(count);
    for (std::int64_t i = 0; i < count; ++i)
      s[static_cast<std::size_t>(i)] = (w[i].item<int>() < 0 ? 1e-3 : -1e-3) * uniform(Stream(seed, 1, 0).bits(i));
    std::int64_t flips = 0;
    for (std::int64_t t = 1; t <= 60; ++t) {
      const auto grad_seed = static_cast<std::uint64_t>(100 + t);
      const at::Tensor grad = int8_gradient ? int8_weight(count, grad_seed) : numbers({count}, grad_seed);
      const std::vector<double> before = values(w), gradient = values(grad);
      step(optimizer, w, grad);
      const std::vector<double> after = values(w);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto j = static_cast<std::size_t>(i);
        l[j] += (1 - o.beta1) * (gradient[j] - l[j]);
        s[j] += (1 - o.beta2) * (o.lr * (l[j] > 0 ? 1 : l[j] < 0 ? -1 : 0) - s[j]);
        flips += after[j] != before[j];
        if (std::fabs(l[j]) < 1e-6 || std::fabs(s[j]) < 1e-9) continue;
        ASSERT_EQ(after[j], (s[j] > 0) != (before[j] < 0) ? -before[j] : before[j]) << "step " << t << ", weight " << i;
      }
    }
    EXPECT_GT(flips, 500);
  }
}

TEST(DiodeMixBinary, AZeroWeightIsPlusOneAndStaysZero) {
  at::Tensor w = at::zeros({4}, at::kChar);
  DiodeMix optimizer({{{signs(w)}, {.lr = 1, .beta1 = 0, .beta2 = 0}}});
  step(optimizer, w, at::full({4}, 1.0));
  EXPECT_TRUE(w.eq(0).all().item<bool>());
}

// One step from zero leaves (1-b1)*g: each element is a neighbour of it in bfloat16, the mean is the value itself.
TEST(DiodeMixBfloat16, MomentsAreRoundedWithoutBias) {
  constexpr std::int64_t count = 40000;
  for (const double g : {0.7317, -0.7317}) {
    at::Tensor p = at::zeros({count});
    DiodeMix optimizer({{{{p, "p"}}, {.beta1 = 0.9, .beta2 = 0.99}}}, 3, MomentType::bfloat16);
    step(optimizer, p, at::full({count}, g));
    const auto expect = [&](const char* name, double value) {
      const at::Tensor moment = optimizer.state().at(name);
      ASSERT_EQ(moment.scalar_type(), at::kBFloat16);
      const at::Tensor wide = moment.to(at::kDouble);
      const double low = wide.abs().min().item<double>(), high = wide.abs().max().item<double>();
      EXPECT_LT(low, std::fabs(value));
      EXPECT_GT(high, std::fabs(value));
      EXPECT_LE(high - low, std::fabs(value) / 128) << "one step of bfloat16";
      EXPECT_NEAR(wide.mean().item<double>(), value, 0.02 * (high - low));
    };
    expect("p.exp_avg_l", 0.1f * static_cast<float>(g));
    expect("p.exp_avg_s", 0.01 * g * g);
  }
}

// A step changes s by less than half a step of bfloat16: rounding to nearest would stand still.
TEST(DiodeMixBfloat16, MomentsFollowThoseOfFloat32) {
  constexpr std::int64_t count = 4000;
  at::Tensor p = at::zeros({count});
  DiodeMix optimizer({{{{p, "p"}}, {.lr = 1e-4, .beta1 = 0.99, .beta2 = 0.9999}}}, 3, MomentType::bfloat16);
  for (int t = 0; t < 600; ++t) step(optimizer, p, at::full({count}, t < 300 ? 1.0 : 0.5));
  double l = 0, s = 0;
  for (int t = 0; t < 600; ++t) {
    const double g = t < 300 ? 1.0 : 0.5;
    l = 0.99 * l + 0.01 * g;
    s = 0.9999 * s + 0.0001 * g * g;
  }
  const auto mean = [&](const char* name) { return optimizer.state().at(name).to(at::kDouble).mean().item<double>(); };
  EXPECT_NEAR(mean("p.exp_avg_l"), l, 0.003 * l);
  EXPECT_NEAR(mean("p.exp_avg_s"), s, 0.003 * s);
}

TEST(DiodeMixBfloat16, MomentsTakeHalfTheBytes) {
  at::Tensor p = at::zeros({1000}), q = code_weight(500, 8, 1), w = int8_weight(300, 1);
  const auto bytes = [&](MomentType type) {
    DiodeMix optimizer({{{p, codes(q, 8, 0.1f), signs(w)}, {.lr = 0}}}, 0, type);
    EXPECT_EQ(optimizer.state_bytes(), 0) << "none before the first step";
    p.mutable_grad() = at::zeros({1000});
    q.mutable_grad() = at::ones({500}, at::kChar);
    w.mutable_grad() = at::ones({300}, at::kChar);
    optimizer.step();
    return optimizer.state_bytes();
  };
  EXPECT_EQ(bytes(MomentType::float32), 8 * 1800);
  EXPECT_EQ(bytes(MomentType::bfloat16), 4 * 1800);
}

TEST(DiodeMix, TheNumberOfThreadsIsNotSeen) {
  constexpr std::int64_t count = 100003;
  const int threads = at::get_num_threads();
  for (const MomentType moments : {MomentType::float32, MomentType::bfloat16}) {
    std::vector<std::vector<at::Tensor>> results;
    for (const int n : {1, 2, 3}) {
      at::set_num_threads(n);
      at::Tensor p = numbers({count}, 1), q8 = code_weight(count, 8, 2), q4 = code_weight(count, 4, 3),
                 w = int8_weight(count, 4);
      DiodeMix optimizer({{{p, codes(q8, 8, 0.01f), codes(q4, 4, 0.1f), signs(w)}, {.lr = 3e-3, .beta2 = 0.7}}}, 5,
                         moments);
      for (std::uint64_t t = 0; t < 3; ++t) {
        const at::Tensor grad = numbers({count}, 10 + t);
        for (at::Tensor* tensor : {&p, &q8, &q4, &w}) tensor->mutable_grad() = grad;
        optimizer.step();
      }
      results.push_back({p, q8, q4, w});
      for (const auto& [name, tensor] : optimizer.state()) results.back().push_back(tensor);
    }
    for (std::size_t i = 0; i < results[0].size(); ++i)
      for (const std::size_t n : {1, 2}) EXPECT_TRUE(results[n][i].equal(results[0][i])) << n << " " << i;
    EXPECT_FALSE(results[0][3].equal(int8_weight(count, 4)));
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace bie::optim::test
