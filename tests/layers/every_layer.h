// Every quantised layer at even and odd sizes, for tests that hold for all of them.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bie/layers/conv2d.h"
#include "bie/layers/linear.h"

namespace bie::layers::test {

struct LayerCase {
  std::string name;
  std::function<std::shared_ptr<IntegerLayer>(bool bias)> make;
  std::vector<std::int64_t> x;  ///< shape of a batch
  std::int64_t axis;            ///< of x, along which the features lie
  double c;                     ///< first-batch scale_a / mean|x|
  bool latent;                  ///< the weight stays float in training
};

inline void PrintTo(const LayerCase& c, std::ostream* out) { *out << c.name; }

/// Normal numbers, the same for the same seed.
inline at::Tensor numbers(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::Generator(at::detail::createCPUGenerator(seed)));
}

inline std::vector<LayerCase> every_layer() {
  constexpr double q8 = 2 / 11.269, q4 = 2 / 5.6345;
  std::vector<LayerCase> cases;
  const auto linear = [&](std::vector<std::int64_t> x, std::int64_t in, std::int64_t out) {
    const std::string size = std::to_string(in) + "To" + std::to_string(out);
    x.push_back(in);
    const std::int64_t axis = static_cast<std::int64_t>(x.size()) - 1;
    for (const bool latent : {false, true}) {
      const std::string name = (latent ? "Latent" : "Integer") + size;
      const auto add = [&](const char* kind, double c, const auto& make) {
        cases.push_back({kind + name, make, x, axis, c, latent});
      };
      add("Binary", 2, [=](bool bias) {
        return std::make_shared<BinaryLinearImpl>(
            BinaryLinearOptions{.in_features = in, .out_features = out, .latent = latent, .bias = bias});
      });
      const auto options = [=](bool bias) {
        return QLinearOptions{.in_features = in, .out_features = out, .latent = latent, .bias = bias};
      };
      add("Q8Linear", q8, [=](bool bias) { return std::make_shared<Q8LinearImpl>(options(bias)); });
      add("Q4Linear", q4, [=](bool bias) { return std::make_shared<Q4LinearImpl>(options(bias)); });
    }
  };
  const auto binary_conv = [&](const std::vector<std::int64_t>& x, BinaryConv2dOptions o) {
    for (const bool latent : {false, true}) {
      const std::string name =
          (latent ? "Latent" : "Integer") + std::to_string(o.in_channels) + "To" + std::to_string(o.out_channels);
      o.latent = latent;
      const auto make = [o](bool bias) {
        BinaryConv2dOptions with = o;
        with.bias = bias;
        return std::make_shared<BinaryConv2dImpl>(with);
      };
      cases.push_back({"BinaryConv" + name, make, x, 1, 2, latent});
    }
  };
  const auto conv = [&](const std::vector<std::int64_t>& x, QConv2dOptions o) {
    for (const bool latent : {false, true}) {
      const std::string name =
          (latent ? "Latent" : "Integer") + std::to_string(o.in_channels) + "To" + std::to_string(o.out_channels);
      o.latent = latent;
      const auto options = [o](bool bias) {
        QConv2dOptions with = o;
        with.bias = bias;
        return with;
      };
      cases.push_back({"Q8Conv" + name, [=](bool bias) { return std::make_shared<Q8Conv2dImpl>(options(bias)); }, x, 1,
                       q8, latent});
      cases.push_back({"Q4Conv" + name, [=](bool bias) { return std::make_shared<Q4Conv2dImpl>(options(bias)); }, x, 1,
                       q4, latent});
    }
  };
  linear({4}, 7, 5);
  linear({2, 3}, 33, 65);
  linear({9}, 65, 33);
  linear({5}, 128, 64);
  binary_conv({2, 3, 7, 6}, {3, 5, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  binary_conv({3, 16, 8, 8}, {16, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, 0});
  conv({2, 3, 7, 6}, {3, 5, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  conv({3, 16, 8, 8}, {16, 32, {3, 3}, {1, 1}, {1, 1}});
  return cases;
}

class EveryLayer : public testing::TestWithParam<LayerCase> {
 protected:
  EveryLayer() { at::manual_seed(4); }

  std::shared_ptr<IntegerLayer> make(bool bias = false) const { return GetParam().make(bias); }
  at::Tensor batch(std::uint64_t seed = 1) const { return numbers(GetParam().x, seed); }
};

/// The output, without a graph.
inline at::Tensor run(IntegerLayer& layer, const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  return layer.forward(x);
}
inline at::Tensor run_training(IntegerLayer& layer, const at::Tensor& x) {
  layer.train();
  return run(layer, x);
}
inline at::Tensor run_eval(IntegerLayer& layer, const at::Tensor& x) {
  layer.eval();
  return run(layer, x);
}

/// Writes other values into a weight in place, as training does: an integer weight's rows in reverse, noise on a float
/// one.
inline void change(at::Tensor weight) {
  const at::NoGradGuard no_grad;
  if (at::isFloatingType(weight.scalar_type()))
    weight.add_(numbers(weight.sizes(), 77).mul(weight.abs().mean()));
  else
    weight.copy_(weight.flip(0));
}

/// Another value of a tensor that trains, as an optimizer leaves it.
inline void assign(const at::Tensor& tensor, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  tensor.copy_(value);
}
inline void assign(const at::Tensor& tensor, double value) { assign(tensor, at::full({}, value)); }

inline float scale(const IntegerLayer& layer) { return layer.scale_a.item<float>(); }

/// Names and copies of all parameters and buffers.
inline StateDict state(const torch::nn::Module& module) {
  StateDict tensors;
  for (const auto& item : module.named_parameters()) tensors[item.key()] = item.value().detach().clone();
  for (const auto& item : module.named_buffers()) tensors[item.key()] = item.value().detach().clone();
  return tensors;
}

inline void expect_same(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_EQ(b.count(name), 1u) << name;
    EXPECT_EQ(tensor.scalar_type(), b.at(name).scalar_type()) << name;
    EXPECT_TRUE(tensor.equal(b.at(name))) << name;
  }
}

inline bool informative(const at::Tensor& y) { return y.isfinite().all().item<bool>() && y.ne(0).any().item<bool>(); }

}  // namespace bie::layers::test
