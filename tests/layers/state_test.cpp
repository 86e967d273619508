// state -> check_state -> taking it: the same bits in every form of the weight, and the entry that does not fit.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "bie/layers/state_dict.h"
#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

/// A trained layer; every tensor has left its initial value.
std::shared_ptr<IntegerLayer> trained(const LayerCase& param, const at::Tensor& x, bool bias) {
  const auto layer = param.make(bias);
  run_training(*layer, x);
  assign(layer->bias_a, numbers(layer->bias_a.sizes(), 21).mul(0.1));
  change(layer->weight);
  return layer;
}

/// As float32; the last is a number before it is one.
constexpr double not_finite[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(), 1e300};

StateDict prefixed(const StateDict& state, const std::string& prefix) {
  StateDict entries;
  for (const auto& [name, tensor] : state) entries[prefix + name] = tensor;
  return entries;
}

TEST_P(EveryLayer, TheStateIsBuiltWithoutChangingTheLayer) {
  for (const bool bias : {false, true}) {
    const auto layer = trained(GetParam(), batch(), bias);
    layer->generate_quantized_weight();
    change(layer->weight);
    const auto before = state(*layer);
    const StateDict packed = layer->state(true), training = layer->state(false);
    expect_same(before, state(*layer));
    EXPECT_EQ(training.count("weight"), 1u);
    EXPECT_EQ(training.count("qweight"), 0u) << "it follows from the weight";
    EXPECT_EQ(packed.count("weight"), 0u);
    const std::size_t size = 4 + (layer->weight_bits() > 1) + bias;
    EXPECT_EQ(training.size(), size);
    layer->generate_quantized_weight(true);
    EXPECT_EQ(packed.size(), size);
    expect_same(packed, state(*layer));
    expect_same(packed, layer->state(true));
    expect_same(packed, layer->state(false));
  }
}

TEST_P(EveryLayer, AStateThatIsTakenGivesTheSameBits) {
  for (const bool bias : {false, true})
    for (const std::string form : {"training", "packed", "of a packed layer"}) {
      SCOPED_TRACE(form);
      const auto from = trained(GetParam(), batch(), bias), to = make(bias);
      if (form == "of a packed layer") from->generate_quantized_weight(true);
      const StateDict saved = from->state(form == "packed");
      StateDict entries = prefixed(saved, "a.b.");
      entries["a.c"] = at::ones({});
      run_training(*to, batch(4));
      const auto before = state(*to);
      const QuantLayer::Take take = to->check_state(entries, "a.b.");
      EXPECT_EQ(entries.size(), 1u) << "its own entries are taken, no others";
      EXPECT_EQ(entries.count("a.c"), 1u);
      expect_same(before, state(*to));
      take();
      EXPECT_STREQ(to->weight_form(), form != "training" ? "packed" : GetParam().latent ? "float" : "int8");
      expect_same(to->state(false), saved);
      EXPECT_TRUE(run_eval(*to, batch()).equal(run_eval(*from, batch())));
      EXPECT_TRUE(run_training(*to, batch()).equal(run_training(*from, batch())));
      expect_same(to->state(false), saved);
      // Nothing is shared: the tensors may be views of a mapped file.
      const at::Tensor y = run_eval(*to, batch());
      for (const auto& [name, tensor] : saved) at::Tensor(tensor).zero_();
      to->repack();
      EXPECT_TRUE(run_eval(*to, batch()).equal(y));
    }
}

TEST_P(EveryLayer, ALayerThatNeverRanIsSavedAndPreparesItselfLater) {
  const auto from = make(), to = make();
  StateDict entries = from->state(false);
  to->check_state(entries, "")();
  EXPECT_STREQ(to->weight_form(), "float");
  EXPECT_EQ(scale(*to), 0);
  EXPECT_TRUE(run_training(*to, batch()).equal(run_training(*from, batch())));
  expect_same(to->state(false), from->state(false));
  const auto untrained = make();
  entries = untrained->state(true);
  to->check_state(entries, "")();
  EXPECT_TRUE(run_eval(*to, batch()).equal(run_eval(*untrained, batch())));
}

TEST_P(EveryLayer, EveryFormGoesIntoEveryForm) {
  const auto from = trained(GetParam(), batch(), false);
  const at::Tensor y = run_eval(*from, batch());
  const StateDict training = from->state(false), packed = from->state(true);
  const auto to = make();
  for (const StateDict* next : {&packed, &training, &training, &packed, &packed, &training}) {
    StateDict entries = *next;
    to->check_state(entries, "")();
    EXPECT_TRUE(run_eval(*to, batch()).equal(y));
    expect_same(to->state(false), *next);
  }
}

TEST_P(EveryLayer, AnOptimizerGoesOnHoldingTheWeight) {
  const auto from = trained(GetParam(), batch(), false), to = make();
  const at::Tensor held = to->weight;
  StateDict entries = from->state(false);
  to->check_state(entries, "")();
  EXPECT_TRUE(held.is_same(to->weight));
  EXPECT_TRUE(held.equal(from->weight));
  EXPECT_EQ(held.requires_grad(), GetParam().latent);
}

TEST_P(EveryLayer, SixteenBitEntriesAreWidened) {
  const auto from = trained(GetParam(), batch(), true), to = make(true);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    StateDict entries = from->state(true), wanted;
    for (auto& [name, tensor] : entries) {
      if (at::isFloatingType(tensor.scalar_type())) tensor = tensor.to(type);
      wanted[name] = at::isFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
    }
    to->check_state(entries, "")();
    expect_same(to->state(true), wanted);
  }
}

TEST_P(EveryLayer, EachEntryThatDoesNotFitIsNamed) {
  const auto layer = trained(GetParam(), batch(), true), from = trained(GetParam(), batch(2), true);
  const auto before = state(*layer);
  const at::Tensor y = run_eval(*layer, batch());
  for (const bool packed : {false, true}) {
    const StateDict good = prefixed(from->state(packed), "p.");
    const auto expect = [&](const StateDict& bad, const std::string& key, const std::string& part) {
      StateDict entries = bad;
      const std::string sentence = refusal([&] { layer->check_state(entries, "p."); });
      EXPECT_NE(sentence.find("'p." + key), std::string::npos) << key << ": " << sentence;
      EXPECT_NE(sentence.find(part), std::string::npos) << part << ": " << sentence;
      EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
    };
    for (const auto& [name, tensor] : good) {
      const std::string key = name.substr(2);
      const bool scalar = tensor.dim() == 0;
      StateDict bad = good;
      bad.erase(name);
      if (key != "eps") expect(bad, key == "qweight" ? "weight" : key, "is missing");
      bad[name] = scalar ? at::ones({3}) : at::zeros({2, 3, 4}, tensor.options());
      expect(bad, key, scalar ? "[3]" : "[2, 3, 4]");
      if (!scalar) expect(bad, key, c10::str(tensor.sizes()));
      bad[name] = tensor.to(at::kShort);
      expect(bad, key, "int16");
      if (!scalar && at::isFloatingType(tensor.scalar_type()))
        for (const double value : not_finite) {
          bad[name] = tensor.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
          bad[name].view(-1)[2].fill_(value);
          expect(bad, key, "holds NaN or infinity");
        }
      if (!scalar) continue;
      for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        bad[name] = at::full({}, value);
        expect(bad, key, " is ");
      }
      bad[name] = at::full({}, -1.0);
      if (key == "scale_a") {
        StateDict entries = bad;
        EXPECT_EQ(refusal([&] { layer->check_state(entries, "p."); }), "") << "BITorch Engine learns such";
      } else {
        expect(bad, key, "is -1");
      }
    }
  }
  expect_same(before, state(*layer));
  EXPECT_TRUE(run_eval(*layer, batch()).equal(y));
}

TEST_P(EveryLayer, CodesOutOfRangeAreNamedAtFourBits) {
  const auto layer = make();
  for (const int code : {-8, 7, -9, 8, 127, -128}) {
    StateDict entries = layer->state(false);
    entries["weight"] = at::zeros(layer->weight_shape(), at::kChar);
    entries["weight"].view(-1)[3].fill_(code);
    const std::string sentence = refusal([&] { layer->check_state(entries, ""); });
    if (layer->weight_bits() == 4 && (code < -8 || code > 7))
      EXPECT_EQ(sentence, "the entry 'weight' holds codes outside [-8, 7]") << code;
    else
      EXPECT_EQ(sentence, "") << code;
  }
}

// load_state_dict: all or nothing over a whole module.
struct Pair : torch::nn::Module {
  Pair() {
    first = register_module("first", std::make_shared<Q4LinearImpl>(7, 6));
    second = register_module("second", std::make_shared<BinaryLinearImpl>(6, 3));
    offset = register_parameter("offset", at::ones({3}));
    steps = register_buffer("steps", at::zeros({}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) { return second->forward(first->forward(x)).add(offset); }

  std::shared_ptr<Q4LinearImpl> first;
  std::shared_ptr<BinaryLinearImpl> second;
  at::Tensor offset, steps;
};

std::shared_ptr<Pair> trained_pair(std::uint64_t seed) {
  at::manual_seed(seed);
  const auto pair = std::make_shared<Pair>();
  const at::NoGradGuard no_grad;
  pair->forward(numbers({5, 7}, seed));
  pair->offset.copy_(numbers({3}, seed));
  pair->steps.fill_(static_cast<std::int64_t>(seed));
  return pair;
}

TEST(StateDict, AWholeModuleIsLoadedInEitherForm) {
  for (const bool packed : {false, true}) {
    const auto from = trained_pair(1), to = trained_pair(2);
    const auto before = state(*from);
    const StateDict saved = state_dict(*from, packed);
    expect_same(before, state(*from));
    load_state_dict(*to, saved);
    expect_same(state_dict(*to, packed), saved);
    from->eval();
    to->eval();
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(to->forward(numbers({5, 7}, 3)).equal(from->forward(numbers({5, 7}, 3))));
  }
}

TEST(StateDict, NothingIsChangedUnlessEverythingFits) {
  const auto to = trained_pair(2);
  const auto before = state(*to);
  const StateDict good = state_dict(*trained_pair(1), false);
  const auto expect = [&](const StateDict& bad, const std::string& part) {
    EXPECT_NE(refusal([&] { load_state_dict(*to, bad); }).find(part), std::string::npos)
        << part << ": " << refusal([&] { load_state_dict(*to, bad); });
    expect_same(before, state(*to));
  };
  for (const auto& [name, tensor] : good) {
    StateDict bad = good;
    bad.erase(name);
    if (name != "first.eps") expect(bad, "'" + name + "'");
    bad[name] = at::zeros({2, 2, 2}, tensor.options());
    expect(bad, "'" + name + "'");
  }
  for (const std::string name : {"a", "second.zeros", "zz.weight", "third.scale_a"}) {
    StateDict bad = good;
    bad[name] = at::ones({});
    expect(bad, "the entry '" + name + "' belongs to no layer");
  }
  StateDict bad = good;
  bad["steps"] = at::zeros({});
  expect(bad, "'steps': expected [] of int64, got [] of float32");
  for (const double value : not_finite) {
    bad = good;
    bad["offset"] = at::full({3}, value, at::kDouble);
    expect(bad, "the entry 'offset' holds NaN or infinity");
  }
}

}  // namespace
}  // namespace bie::layers::test
