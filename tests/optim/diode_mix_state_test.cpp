// DiodeMix::state and load_state: a run goes on to the bit; a state that does not fit changes nothing.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <vector>

#include "tests/optim/params.h"
#include "tests/support/scratch.h"

namespace bie::optim::test {
namespace {

using bie::test::refusal;
using State = std::map<std::string, at::Tensor>;

/// One parameter of every kind, and the values they start from or go on from.
struct Model {
  std::vector<Param> params;

  Model()
      : params{{numbers({5, 7}, 1), "f32"},
               {numbers({11}, 2).to(at::kBFloat16), "bf16"},
               {numbers({11}, 3).to(at::kHalf), "f16"},
               codes(code_weight(40, 8, 4), 8, 0.02f, "q8"),
               codes(code_weight(40, 4, 5), 4, 0.2f, "q4"),
               signs(int8_weight(60, 6), "w"),
               {numbers({3}, 7), "never"}} {}
  Model(const Model& other) {
    for (const Param& p : other.params)
      params.emplace_back(p.tensor.clone(), p.name, p.bits, p.scale_w.defined() ? p.scale_w.clone() : at::Tensor());
  }

  DiodeMix optimizer(std::uint64_t seed, MomentType moments, const DiodeMixOptions& a, const DiodeMixOptions& b) const {
    return DiodeMix({{{params.begin(), params.begin() + 4}, a}, {{params.begin() + 4, params.end()}, b}}, seed,
                    moments);
  }
  /// Every parameter but the last gets its gradient of step t.
  void gradients(std::uint64_t t) {
    for (std::size_t i = 0; i + 1 < params.size(); ++i) {
      at::Tensor& tensor = params[i].tensor;
      const at::Tensor grad = numbers(tensor.sizes(), 100 * t + i);
      tensor.mutable_grad() = at::isFloatingType(tensor.scalar_type()) ? grad.to(tensor.scalar_type()) : grad;
    }
  }
};

constexpr DiodeMixOptions first{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.97, .weight_decay = 0.1};
constexpr DiodeMixOptions second{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.6, .correct_bias = false, .renew_scale_every = 2};

void expect_same(const Model& a, const Model& b) {
  for (std::size_t i = 0; i < a.params.size(); ++i) {
    EXPECT_TRUE(a.params[i].tensor.equal(b.params[i].tensor)) << a.params[i].name;
    if (a.params[i].scale_w.defined()) {
      EXPECT_TRUE(a.params[i].scale_w.equal(b.params[i].scale_w));
    }
  }
}

State copy(const State& state) {
  State result;
  for (const auto& [name, tensor] : state) result[name] = tensor.clone();
  return result;
}

void expect_same(const State& a, const State& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_EQ(b.count(name), 1u) << name;
    EXPECT_EQ(tensor.scalar_type(), b.at(name).scalar_type()) << name;
    EXPECT_TRUE(tensor.equal(b.at(name))) << name;
  }
}

TEST(DiodeMixState, ARunGoesOnToTheBit) {
  for (const MomentType moments : {MomentType::float32, MomentType::bfloat16})
    for (const std::uint64_t stop : {0, 1, 3, 4}) {
      Model one;
      DiodeMix whole = one.optimizer(17, moments, first, second);
      for (std::uint64_t t = 0; t < stop; ++t) {
        one.gradients(t);
        whole.step();
      }
      Model two(one);
      DiodeMix rest = two.optimizer(99, moments, {.lr = 5}, {.lr = 7});
      rest.load_state(copy(whole.state()));
      EXPECT_EQ(rest.groups()[0].options.lr, first.lr);
      EXPECT_EQ(rest.groups()[1].options.renew_scale_every, second.renew_scale_every);
      EXPECT_FALSE(rest.groups()[1].options.correct_bias);
      const Model before(one);
      for (std::uint64_t t = stop; t < 7; ++t) {
        one.gradients(t);
        two.gradients(t);
        whole.step();
        rest.step();
        expect_same(one, two);
      }
      expect_same(whole.state(), rest.state());
      EXPECT_EQ(whole.state_bytes(), rest.state_bytes());
      for (std::size_t i = 0; i < one.params.size(); ++i)
        EXPECT_EQ(one.params[i].tensor.equal(before.params[i].tensor), one.params[i].name == "never") << i;
    }
}

TEST(DiodeMixState, TheSeedIsPartOfIt) {
  Model one, two;
  DiodeMix a = one.optimizer(~std::uint64_t{0}, MomentType::float32, first, second);
  DiodeMix b = two.optimizer(1, MomentType::float32, first, second);
  b.load_state(a.state());
  one.gradients(0);
  two.gradients(0);
  a.step();
  b.step();
  expect_same(one, two);
}

TEST(DiodeMixState, ALoadedStateIsACopy) {
  Model one, two;
  DiodeMix a = one.optimizer(1, MomentType::float32, first, second);
  DiodeMix b = two.optimizer(1, MomentType::float32, first, second);
  one.gradients(0);
  a.step();
  b.load_state(a.state());
  const State loaded = copy(b.state());
  one.gradients(1);
  a.step();
  expect_same(loaded, b.state());
  EXPECT_FALSE(a.state().at("f32.exp_avg_l").equal(loaded.at("f32.exp_avg_l")));
}

TEST(DiodeMixState, ParametersWithoutANameHaveTheirPlace) {
  at::Tensor p = numbers({3}, 1), q = numbers({4}, 2);
  DiodeMix optimizer({{{numbers({2}, 3), p}, {}}, {{q}, {}}});
  p.mutable_grad() = at::ones({3});
  q.mutable_grad() = at::ones({4});
  optimizer.step();
  const State state = optimizer.state();
  for (const char* name : {"seed", "group0.options", "group1.options", "group0.1.exp_avg_l", "group0.1.exp_avg_s",
                           "group0.1.step", "group1.0.exp_avg_l", "group1.0.exp_avg_s", "group1.0.step"})
    EXPECT_EQ(state.count(name), 1u) << name;
  EXPECT_EQ(state.size(), 9u);
}

TEST(DiodeMixState, WhatDoesNotFitIsNamedAndChangesNothing) {
  for (const MomentType moments : {MomentType::float32, MomentType::bfloat16}) {
    Model source, target;
    DiodeMix from = source.optimizer(1, moments, first, second), to = target.optimizer(2, moments, second, first);
    source.gradients(0);
    from.step();
    target.gradients(5);
    to.step();
    const State good = copy(from.state()), before = copy(to.state());
    const auto expect = [&](const State& bad, const std::string& name) {
      const std::string sentence = refusal([&] { to.load_state(bad); });
      EXPECT_NE(sentence.find("'" + name + "'"), std::string::npos) << name << ": " << sentence;
      EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
      expect_same(before, to.state());
    };
    for (const auto& [name, tensor] : good) {
      State bad = good;
      bad.erase(name);
      expect(bad, name);
      bad[name] = at::zeros({2, 2, 2}, tensor.options());
      expect(bad, name);
      bad[name] = tensor.to(at::kShort);
      expect(bad, name);
    }
    for (const std::string name : {"a", "other.exp_avg_l", "group2.options", "zz", "never.exp_avg_s"}) {
      State bad = good;
      bad[name] = at::zeros({3});
      expect(bad, name);
    }
    EXPECT_NE(refusal([&] { to.load_state({}); }), "");
    // Values are checked too.
    for (const double value : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
      State bad = copy(good);
      bad["group1.options"][0].fill_(value);
      EXPECT_NE(refusal([&] { to.load_state(bad); }).find("lr"), std::string::npos);
      expect_same(before, to.state());
    }
    for (const auto& [name, tensor] : good) {
      State bad = copy(good);
      if (name.ends_with(".step")) bad[name].fill_(0);
      if (name.ends_with(".exp_avg_s")) bad[name].view({-1})[0].fill_(std::numeric_limits<float>::infinity());
      if (bad[name].equal(tensor)) continue;
      EXPECT_NE(refusal([&] { to.load_state(bad); }).find(name.substr(0, name.rfind('.'))), std::string::npos) << name;
      expect_same(before, to.state());
    }
    const MomentType other = moments == MomentType::float32 ? MomentType::bfloat16 : MomentType::float32;
    DiodeMix differs = target.optimizer(2, other, first, second);
    EXPECT_NE(refusal([&] { differs.load_state(good); }).find("exp_avg_l"), std::string::npos);
    EXPECT_EQ(differs.state_bytes(), 0);
    EXPECT_EQ(refusal([&] { to.load_state(good); }), "");
    expect_same(good, to.state());
  }
}

}  // namespace
}  // namespace bie::optim::test
