// Every quantised layer at even and odd sizes, for tests that hold for all of them.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bie/nn/conv2d.h"
#include "bie/nn/linear.h"

namespace bie::nn::test {

struct LayerCase {
  std::string name;
  std::function<std::shared_ptr<QuantLayer>()> make;
  std::vector<std::int64_t> x;  ///< shape of a batch
  std::int64_t axis;            ///< of x, along which the features lie
  double c;                     ///< first-batch scale_a / mean|x|
  bool latent = false;
};

inline void PrintTo(const LayerCase& c, std::ostream* out) { *out << c.name; }

/// Normal numbers, the same for the same seed.
inline at::Tensor numbers(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::Generator(at::detail::createCPUGenerator(seed)));
}

inline std::vector<LayerCase> every_layer() {
  std::vector<LayerCase> cases;
  const auto linear = [&](std::vector<std::int64_t> lead, std::int64_t in, std::int64_t out) {
    const std::string size = std::to_string(in) + "To" + std::to_string(out);
    lead.push_back(in);
    const std::int64_t axis = static_cast<std::int64_t>(lead.size()) - 1;
    cases.push_back({"Binary" + size, [=] { return std::make_shared<BinaryLinearImpl>(in, out); }, lead, axis, 2});
    cases.push_back({"Latent" + size,
                     [=] {
                       return std::make_shared<BinaryLinearImpl>(BinaryLinearOptions{in, out, true});
                     },
                     lead, axis, 2, true});
    cases.push_back(
        {"Q8Linear" + size, [=] { return std::make_shared<Q8LinearImpl>(in, out); }, lead, axis, 2 / 11.269});
    cases.push_back(
        {"Q4Linear" + size, [=] { return std::make_shared<Q4LinearImpl>(in, out); }, lead, axis, 2 / 5.6345});
  };
  const auto conv = [&](std::vector<std::int64_t> x, QConv2dOptions o) {
    const std::string size = std::to_string(o.in_channels) + "To" + std::to_string(o.out_channels);
    cases.push_back({"Q8Conv" + size, [=] { return std::make_shared<Q8Conv2dImpl>(o); }, x, 1, 2 / 11.269});
    cases.push_back({"Q4Conv" + size, [=] { return std::make_shared<Q4Conv2dImpl>(o); }, x, 1, 2 / 5.6345});
  };
  linear({4}, 7, 5);
  linear({2, 3}, 33, 65);
  linear({9}, 65, 33);
  linear({5}, 128, 64);
  conv({2, 3, 7, 6}, {3, 5, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  conv({3, 16, 8, 8}, {16, 32, {3, 3}, {1, 1}, {1, 1}});
  return cases;
}

class EveryLayer : public testing::TestWithParam<LayerCase> {
 protected:
  EveryLayer() { at::manual_seed(4); }

  std::shared_ptr<QuantLayer> make() const { return GetParam().make(); }
  at::Tensor batch(std::uint64_t seed = 1) const { return numbers(GetParam().x, seed); }
};

/// The output, without a graph.
inline at::Tensor run(QuantLayer& layer, const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  return layer.forward(x);
}
inline at::Tensor run_training(QuantLayer& layer, const at::Tensor& x) {
  layer.train();
  return run(layer, x);
}
inline at::Tensor run_eval(QuantLayer& layer, const at::Tensor& x) {
  layer.eval();
  return run(layer, x);
}

/// What training does to a weight: another value in place. The signs of half of an int8 weight, noise on a float one.
inline void change(at::Tensor weight) {
  const at::NoGradGuard no_grad;
  const at::Tensor noise = numbers(weight.sizes(), 77);
  if (at::isFloatingType(weight.scalar_type()))
    weight.add_(noise.mul(weight.abs().mean()));
  else
    weight.mul_(noise.sign().to(weight.scalar_type()));
}

}  // namespace bie::nn::test
