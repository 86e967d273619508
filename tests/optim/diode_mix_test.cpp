// DiodeMix against its rules written out in float64 (docs/spec/optimizer.md), and that its groups are its own.
#include "bie/optim/diode_mix.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <cmath>
#include <vector>

#include "tests/optim/params.h"

namespace bie::optim::test {
namespace {

double share(const at::Tensor& mask) { return mask.to(at::kDouble).mean().item<double>(); }

TEST(DiodeMixFloat, FiftyStepsFollowTheRule) {
  for (const bool correct_bias : {true, false})
    for (const double weight_decay : {0.0, 0.3})
      for (const double eps : {1e-6, 0.1}) {
        const DiodeMixOptions o{0.01, 0.9, 0.97, eps, weight_decay, correct_bias};
        at::Tensor param = numbers({7, 5}, 1);
        std::vector<double> p(35), l(35), s(35);
        for (std::size_t i = 0; i < p.size(); ++i) p[i] = param.view(-1)[static_cast<std::int64_t>(i)].item<float>();
        DiodeMix optimizer({{{param}, o}});
        for (std::uint64_t t = 1; t <= 50; ++t) {
          const at::Tensor grad = numbers({7, 5}, 10 + t).add_(0.5);
          step(optimizer, param, grad);
          double rate = o.lr;
          const double count = static_cast<double>(t);
          if (correct_bias) rate *= std::sqrt(1 - std::pow(o.beta2, count)) / (1 - std::pow(o.beta1, count));
          for (std::size_t i = 0; i < p.size(); ++i) {
            const double g = grad.view(-1)[static_cast<std::int64_t>(i)].item<float>();
            l[i] = o.beta1 * l[i] + (1 - o.beta1) * g;
            s[i] = o.beta2 * s[i] + (1 - o.beta2) * g * g;
            p[i] -= rate * l[i] / (std::sqrt(s[i]) + o.eps);
            p[i] -= o.lr * o.weight_decay * p[i];
          }
        }
        for (std::size_t i = 0; i < p.size(); ++i)
          EXPECT_NEAR(param.view(-1)[static_cast<std::int64_t>(i)].item<float>(), p[i], 1e-5)
              << correct_bias << " " << weight_decay << " " << eps;
      }
}

// The step is computed in float32 and rounded once to the parameter's type.
TEST(DiodeMixFloat, SixteenBitParametersFollowTheRule) {
  for (const auto& [type, half_ulp] : {std::pair{at::kBFloat16, 0x1p-8}, std::pair{at::kHalf, 0x1p-11}}) {
    const DiodeMixOptions o{.lr = 0.05, .beta1 = 0.9, .beta2 = 0.97, .weight_decay = 0.3};
    at::Tensor param = numbers({64}, 1).to(type);
    DiodeMix optimizer({{{param}, o}});
    std::vector<double> l(64), s(64);
    for (std::uint64_t t = 1; t <= 30; ++t) {
      const at::Tensor before = param.to(at::kDouble), grad = numbers({64}, 10 + t).to(type);
      step(optimizer, param, grad);
      const double count = static_cast<double>(t);
      const double rate = o.lr * std::sqrt(1 - std::pow(o.beta2, count)) / (1 - std::pow(o.beta1, count));
      for (std::size_t i = 0; i < 64; ++i) {
        const auto j = static_cast<std::int64_t>(i);
        const double g = grad[j].to(at::kDouble).item<double>();
        l[i] = o.beta1 * l[i] + (1 - o.beta1) * g;
        s[i] = o.beta2 * s[i] + (1 - o.beta2) * g * g;
        double p = before[j].item<double>();
        p -= rate * l[i] / (std::sqrt(s[i]) + o.eps);
        p -= o.lr * o.weight_decay * p;
        ASSERT_NEAR(param[j].to(at::kDouble).item<double>(), p, half_ulp * std::fabs(p) + 1e-6) << type << " " << t;
      }
    }
  }
}

TEST(DiodeMixFloat, ZeroRateMovesNothing) {
  at::Tensor param = numbers({9}, 1);
  const at::Tensor before = param.clone();
  DiodeMix optimizer({{{param}, {0, 0.9, 0.99, 1e-6, 0.5}}});
  step(optimizer, param, numbers({9}, 2));
  EXPECT_TRUE(param.equal(before));
}

TEST(DiodeMixFloat, StridedGradientsAreReadByValue) {
  const at::Tensor grad = numbers({6, 4}, 3);
  at::Tensor a = numbers({4, 6}, 1), b = a.clone();
  DiodeMix of_a({{{a}, {}}}), of_b({{{b}, {}}});
  step(of_a, a, grad.t());
  step(of_b, b, grad.t().contiguous());
  EXPECT_TRUE(a.equal(b));
}

TEST(DiodeMixFloat, ParametersWithoutAGradientAreSkipped) {
  at::Tensor a = numbers({3}, 1), b = numbers({3}, 2);
  const at::Tensor before = b.clone();
  DiodeMix optimizer({{{a, b}, {}}});
  step(optimizer, a, at::ones({3}));
  EXPECT_TRUE(b.equal(before));
  // b's own first step is its first, whatever a has done: Adam's first step is lr in size.
  a.mutable_grad() = at::Tensor();
  step(optimizer, b, at::ones({3}));
  EXPECT_TRUE(b.allclose(before.sub(1e-4), 0, 1e-6));
}

TEST(DiodeMix, GroupsHaveRatesOfTheirOwnThatCanBeChanged) {
  at::Tensor a = at::zeros({3}), b = at::zeros({3});
  DiodeMix optimizer({{{a}, {0.1}}, {{b}, {0.2}}});
  a.mutable_grad() = b.mutable_grad() = at::ones({3});
  optimizer.step();
  EXPECT_TRUE(a.allclose(at::full({3}, -0.1), 1e-3));
  EXPECT_TRUE(b.allclose(at::full({3}, -0.2), 1e-3));
  optimizer.groups()[1].options.lr = 0;
  const at::Tensor before = b.clone();
  optimizer.step();
  EXPECT_TRUE(b.equal(before));
  EXPECT_FALSE(a.allclose(at::full({3}, -0.1), 1e-3));
}

TEST(DiodeMix, ZeroGradForgetsGradients) {
  at::Tensor a = at::zeros({3}), w = int8_weight(3, 1);
  DiodeMix optimizer({{{a, signs(w)}, {}}});
  a.mutable_grad() = at::ones({3});
  w.mutable_grad() = at::ones({3}, at::kChar);
  optimizer.zero_grad();
  EXPECT_FALSE(a.grad().defined());
  EXPECT_FALSE(w.grad().defined());
  const at::Tensor before = w.clone();
  optimizer.step();
  EXPECT_TRUE(a.eq(0).all().item<bool>());
  EXPECT_TRUE(w.equal(before));
}

TEST(DiodeMixBinary, AConstantGradientEndsAtItsOppositeSign) {
  for (const bool int8 : {true, false}) {
    at::Tensor w = int8_weight(500, 1);
    const at::Tensor magnitude = w.abs(), grad = int8_weight(500, 2);
    DiodeMix optimizer({{{signs(w)}, {1.0, 0.9, 0.9}}});
    for (int i = 0; i < 3; ++i) step(optimizer, w, int8 ? grad : grad.to(at::kFloat).mul(1e-3));
    EXPECT_TRUE(sign_of(w).equal(sign_of(grad).neg()));
    EXPECT_TRUE(w.abs().equal(magnitude)) << "a flip negates";
  }
}

TEST(DiodeMixBinary, TheExtremesFlipWithinInt8) {
  at::Tensor w = at::full({2}, -128, at::kChar);
  w[1].fill_(127);
  DiodeMix optimizer({{{signs(w)}, {1.0, 0.0, 0.0}}});
  at::Tensor grad = at::full({2}, -1, at::kChar);
  grad[1].fill_(1);
  step(optimizer, w, grad);
  EXPECT_EQ(w[0].item<int>(), 127);
  EXPECT_EQ(w[1].item<int>(), -127);
}

TEST(DiodeMixBinary, ATinyRateMovesNothing) {
  for (const double lr : {0.0, 1e-9}) {
    at::Tensor w = int8_weight(500, 1);
    const at::Tensor before = w.clone();
    DiodeMix optimizer({{{signs(w)}, {lr, 0.9, 0.99}}});
    for (int i = 0; i < 20; ++i) step(optimizer, w, before);  // the gradient that wants every sign to change
    EXPECT_TRUE(w.equal(before));
  }
}

// l = 0 gives v = 0, and s keeps the sign it started with: that of -w.
TEST(DiodeMixBinary, WithoutAGradientNothingFlips) {
  at::Tensor w = int8_weight(400, 1);
  const at::Tensor before = w.clone();
  at::Tensor grad = int8_weight(400, 2);
  const at::Tensor still = at::zeros({400}, at::kBool);
  still.slice(0, 0, 200).fill_(true);
  grad.masked_fill_(still, 0);
  DiodeMix optimizer({{{signs(w)}, {1.0, 0.5, 0.9}}});
  for (int i = 0; i < 50; ++i) step(optimizer, w, grad);
  EXPECT_TRUE(w.slice(0, 0, 200).equal(before.slice(0, 0, 200)));
  EXPECT_FALSE(w.slice(0, 200).equal(before.slice(0, 200)));
}

// After enough steps the random start is forgotten and both moments are those of the rule.
TEST(DiodeMixBinary, TwoHundredStepsFollowTheRule) {
  constexpr std::int64_t count = 300;
  const DiodeMixOptions o{0.02, 0.8, 0.9};
  at::Tensor w = int8_weight(count, 1);
  DiodeMix optimizer({{{signs(w)}, o}});
  std::vector<double> l(count), s(count);
  std::int64_t checked = 0, flips = 0;
  at::Tensor last = w.clone();
  for (std::uint64_t t = 0; t < 400; ++t) {
    const at::Tensor grad = numbers({count}, 100 + t);
    step(optimizer, w, grad);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto j = static_cast<std::size_t>(i);
      l[j] += (1 - o.beta1) * (grad[i].item<float>() - l[j]);
      s[j] += (1 - o.beta2) * (o.lr * (l[j] > 0 ? 1 : l[j] < 0 ? -1 : 0) - s[j]);
      if (t < 200 || std::fabs(s[j]) < 1e-5) continue;
      ++checked;
      ASSERT_EQ(w[i].item<int>() < 0, s[j] > 0) << "step " << t << ", weight " << i;
    }
    flips += w.ne(last).sum().item<std::int64_t>();
    last.copy_(w);
  }
  EXPECT_GT(checked, 200 * count * 9 / 10);
  EXPECT_GT(flips, 1000);
}

// s starts as -sgn(w)*U(0,1)*1e-3: a push of (1-b2)*lr against it flips those whose U is below the push / b2 / 1e-3.
TEST(DiodeMixBinary, TheStartIsUniformUpToAThousandth) {
  for (const double below : {0.2, 0.7, 1.01}) {
    at::Tensor w = int8_weight(20000, 1);
    const at::Tensor before = w.clone();
    const double b2 = 0.5;
    DiodeMix optimizer({{{signs(w)}, {below * 1e-3 * b2 / (1 - b2), 0.9, b2}}});
    step(optimizer, w, before);
    for (const at::Tensor& side : {before.gt(0), before.lt(0)})
      EXPECT_NEAR(share(w.ne(before).masked_select(side)), std::min(below, 1.0), 0.02);
  }
}

TEST(DiodeMixBinary, TheSeedIsTheStart) {
  const auto after = [](std::uint64_t seed) {
    at::Tensor w = int8_weight(1000, 1);
    DiodeMix optimizer({{{signs(w)}, {5e-4, 0.9, 0.5}}}, seed);
    step(optimizer, w, w.clone());
    return w;
  };
  EXPECT_TRUE(after(1).equal(after(1)));
  EXPECT_FALSE(after(1).equal(after(2)));
}

TEST(DiodeMixBinary, EveryShapeOfGradientCounts) {
  at::Tensor a = int8_weight(24, 1).view({4, 6}), b = a.clone(), c = a.clone();
  const at::Tensor grad = int8_weight(24, 2).view({6, 4});
  DiodeMix of_a({{{signs(a)}, {1.0}}}), of_b({{{signs(b)}, {1.0}}}), of_c({{{signs(c)}, {1.0}}});
  step(of_a, a, grad.t());
  step(of_b, b, grad.t().contiguous());
  c.set_grad_dtype(at::kBFloat16);
  step(of_c, c, grad.t().to(at::kBFloat16));
  EXPECT_TRUE(a.equal(b));
  EXPECT_TRUE(a.equal(c));
}

TEST(DiodeMix, ASteppedParameterHasANewVersion) {
  at::Tensor p = numbers({3}, 1), w = int8_weight(3, 1);
  DiodeMix optimizer({{{p, signs(w)}, {}}});
  p.mutable_grad() = at::ones({3});
  w.mutable_grad() = at::ones({3}, at::kChar);
  const auto p_version = p._version(), w_version = w._version();
  optimizer.step();
  EXPECT_GT(p._version(), p_version);
  EXPECT_GT(w._version(), w_version);
}

}  // namespace
}  // namespace bie::optim::test
