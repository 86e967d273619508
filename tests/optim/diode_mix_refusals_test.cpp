// Refusals of DiodeMix: options, parameters, gradients and their lack; NaN in a gradient.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "bie/ops.h"
#include "tests/optim/params.h"
#include "tests/support/scratch.h"

namespace bie::optim::test {
namespace {

using bie::test::refusal;

TEST(DiodeMix, OptionsOutOfRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto expect = [](const DiodeMixOptions& o, const std::string& part) {
    at::Tensor p = at::ones({2});
    const std::string sentence = refusal([&] { DiodeMix({{{p}, o}}); });
    EXPECT_NE(sentence.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << sentence;
    // A rate that is changed later is checked by the step.
    DiodeMix optimizer({{{p}, {}}});
    optimizer.groups()[0].options = o;
    p.mutable_grad() = at::ones({2});
    EXPECT_NE(refusal([&] { optimizer.step(); }).find(part), std::string::npos);
    EXPECT_TRUE(p.equal(at::ones({2})));
  };
  for (const double bad : {-1e-9, -1.0, nan}) {
    DiodeMixOptions o;
    o.lr = bad;
    expect(o, "lr: expected a number >= 0, got");
    o = {};
    o.eps = bad;
    expect(o, "eps: expected a number >= 0, got");
    o = {};
    o.weight_decay = bad;
    expect(o, "weight_decay: expected a number >= 0, got");
  }
  DiodeMixOptions renew;
  renew.renew_scale_every = -1;
  expect(renew, "renew_scale_every: expected a number >= 0, got -1");
  for (const double bad : {-0.1, 1.0, 1.5, nan}) {
    DiodeMixOptions o;
    o.beta1 = bad;
    expect(o, "a beta: expected a number in [0, 1), got");
    o = {};
    o.beta2 = bad;
    expect(o, "a beta: expected a number in [0, 1), got");
  }
}

TEST(DiodeMix, OtherParametersAreRefused) {
  for (const at::Tensor& bad : {at::ones({3}, at::kDouble), at::ones({3}, at::kByte), at::ones({3}, at::kLong),
                                at::ones({4, 6}).t(), at::Tensor()})
    EXPECT_NE(refusal([&] { DiodeMix({{{at::ones({3}), bad}, {}}}); }).find("group0.1"), std::string::npos);
}

TEST(DiodeMix, IntegersSayWhatTheyHold) {
  const at::Tensor w = int8_weight(6, 1), scale = at::ones({});
  const auto expect = [](const Param& param, const std::string& part) {
    const std::string sentence = refusal([&] { DiodeMix({{{param}, {}}}); });
    EXPECT_NE(sentence.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << sentence;
    EXPECT_NE(sentence.find("some.weight"), std::string::npos) << sentence;
  };
  for (const int bits : {32, 16, 2, 0, -1})
    expect({w, "some.weight", bits, scale},
           "expected int8 of 1, 4 or 8 bits (see optim::parameters), got int8 of " + std::to_string(bits));
  for (const int bits : {8, 4}) {
    expect({w, "some.weight", bits}, "scale_w");
    expect({w, "some.weight", bits, at::ones({2})}, "scale_w");
    expect({w, "some.weight", bits, at::ones({}, at::kHalf)}, "scale_w");
    EXPECT_EQ(refusal([&] { DiodeMix({{{{w, "some.weight", bits, scale}}, {}}}); }), "");
  }
  EXPECT_EQ(refusal([&] { DiodeMix({{{{w, "some.weight", 1}}, {}}}); }), "");
}

TEST(DiodeMix, AParameterGivenTwiceIsRefused) {
  const at::Tensor a = at::ones({3}), b = at::ones({3});
  EXPECT_NE(refusal([&] { DiodeMix({{{a, a}, {}}}); }).find("given twice"), std::string::npos);
  EXPECT_NE(refusal([&] { DiodeMix({{{a}, {}}, {{b, a}, {}}}); }).find("group1.1"), std::string::npos);
  const std::string names = refusal([&] { DiodeMix({{{{a, "x"}}, {}}, {{{b, "x"}}, {}}}); });
  EXPECT_NE(names.find("x is given twice"), std::string::npos) << "its state would have one name twice: " << names;
}

/// The sentence of a step's c10::Error.
std::string failure(DiodeMix& optimizer) {
  try {
    optimizer.step();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(DiodeMix, AnInt8WeightWithoutAGradientAmongOthersIsAnError) {
  at::Tensor p = at::ones({3}), w = int8_weight(35, 1).view({7, 5});
  DiodeMix optimizer({{{p}, {}}, {{signs(w)}, {}}});
  EXPECT_EQ(failure(optimizer), "") << "no gradient at all: nothing to do";
  p.mutable_grad() = at::ones({3});
  const std::string sentence = failure(optimizer);
  EXPECT_NE(sentence.find("[7, 5]"), std::string::npos) << sentence;
  EXPECT_TRUE(p.equal(at::ones({3}))) << "nothing has moved";
}

TEST(DiodeMix, AGradientOfAnotherShapeIsRefused) {
  at::Tensor p = at::ones({3, 2});
  DiodeMix optimizer({{{{p, "p"}}, {}}});
  p.mutable_grad() = at::ones({6});
  EXPECT_NE(failure(optimizer).find("p is [3, 2], its gradient [6]"), std::string::npos) << failure(optimizer);
}

TEST(DiodeMix, SparseGradientsAreAnErrorThatSaysSo) {
  at::Tensor p = at::ones({3, 2});
  DiodeMix optimizer({{{p}, {}}});
  p.mutable_grad() = at::ones({3, 2}).to_sparse();
  EXPECT_NE(failure(optimizer).find("DiodeMix: sparse gradients"), std::string::npos) << failure(optimizer);
}

// A NaN or infinity spoils a float for good, as in torch; an integer weight is left out of that step.
TEST(DiodeMixNan, AnIntegerWeightGoesOnAsIfTheStepHadNotBeen) {
  constexpr std::int64_t count = 600;
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    for (const std::int64_t place : {2, 255, 256, 599})
      for (const auto& [moments, int8] :
           {std::pair(MomentType::float32, false), {MomentType::bfloat16, false}, {MomentType::float32, true}}) {
        std::vector<std::vector<at::Tensor>> ends;
        for (const bool spoilt : {false, true}) {
          at::Tensor p = numbers({count}, 1), q8 = code_weight(count, 8, 2), q4 = code_weight(count, 4, 3),
                     w = int8_weight(count, 4);
          DiodeMix optimizer({{{p, codes(q8, 8, 0.1f), codes(q4, 4, 0.1f), signs(w)}, {0.5, 0.5, 0.5}}}, 0, moments);
          for (int t = 0; t < 4; ++t) {
            at::Tensor grad = sign_of(w).to(at::kFloat);
            if (t == 1) grad[place].fill_(value);
            if (t == 1 && !spoilt) continue;
            for (at::Tensor* tensor : {&p, &q8, &q4, &w}) tensor->mutable_grad() = grad;
            if (int8) q8.mutable_grad() = q4.mutable_grad() = w.mutable_grad() = ops::int8_grad(grad);
            optimizer.step();
          }
          if (spoilt) {
            const at::Tensor bad = p.isfinite().logical_not();
            EXPECT_EQ(bad.sum().item<int>(), 1);
            EXPECT_TRUE(bad[place].item<bool>());
          }
          ends.push_back({q8, q4, w});
        }
        for (std::size_t i = 0; i < ends[0].size(); ++i) EXPECT_TRUE(ends[0][i].equal(ends[1][i])) << i;
      }
}

// An exact code that nothing pushes stays where it is, whatever the random numbers are.
TEST(DiodeMixCodes, WithoutAPushCodesStay) {
  at::Tensor q = at::full({1 << 21}, 100, at::kChar);
  DiodeMix optimizer({{{codes(q, 8, 1.0f)}, {.lr = 0}}});
  step(optimizer, q, at::ones({1 << 21}));
  EXPECT_TRUE(q.eq(100).all().item<bool>());
}

}  // namespace
}  // namespace bie::optim::test
