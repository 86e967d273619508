// Small regressions: every form of a weight learns, integer codes and signs by DiodeMix, floats by torch or DiodeMix.
#include <ATen/ops/conv2d.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "bie/optim/parameters.h"
#include "tests/layers/every_layer.h"

namespace bie::layers::test {
namespace {

// Where a training ends depends on its seed and on the bits of the machine's BLAS. Every training runs from five seeds,
// and its limit leaves room above the worst of 20 seeds under seven settings that stand for other CPUs: 0.08 of the
// first loss for integer codes (limit 0.25), 0.32 for signs (0.5), 0.40 for floats (0.6). Frozen weights stay near 1.
constexpr std::uint64_t seeds = 5;

/// Images or rows, and what a float map of the same kind makes of them.
struct Task {
  at::Tensor x, wanted;
};

Task linear_task() {
  const at::Tensor x = numbers({128, 33}, 1);
  return {x, x.mm(numbers({33, 5}, 2)).div(std::sqrt(33))};
}

Task conv_task() {
  const at::Tensor x = numbers({24, 3, 6, 6}, 1);
  return {x, at::conv2d(x, numbers({5, 3, 3, 3}, 2)).div(std::sqrt(27))};
}

at::Tensor loss_of(IntegerLayer& layer, const Task& task) {
  return layer.forward(task.x).sub(task.wanted).square().mean();
}

/// Losses of the first forward pass and after `steps`, the second in evaluation.
template <class Step>
std::pair<double, double> train(IntegerLayer& layer, const Task& task, int steps, const Step& step) {
  layer.train();
  double first = 0;
  for (int i = 0; i < steps; ++i) {
    const at::Tensor loss = loss_of(layer, task);
    if (i == 0) first = loss.item<double>();
    loss.backward();
    step(i);
  }
  layer.eval();
  const at::NoGradGuard no_grad;
  return {first, loss_of(layer, task).item<double>()};
}

std::pair<double, double> train_by_mix(IntegerLayer& layer, const Task& task, int steps,
                                       optim::DiodeMixOptions options) {
  layer.prepare_params();
  optim::DiodeMix mix({{optim::parameters(layer), options}}, 3);
  const double lr = options.lr;
  return train(layer, task, steps, [&](int i) {
    mix.groups()[0].options.lr = lr * (1 - static_cast<double>(i) / steps);
    mix.step();
    mix.zero_grad();
  });
}

TEST(IntegerCodes, TrainWithDiodeMix) {
  for (const int bits : {8, 4})
    for (const bool convolution : {false, true})
      for (const std::int64_t renew : {0, 20})
        for (std::uint64_t seed = 0; seed < seeds; ++seed) {
          SCOPED_TRACE(testing::Message()
                       << bits << " bits, convolution " << convolution << ", renew " << renew << ", seed " << seed);
          at::manual_seed(seed);
          const QLinearOptions linear{.in_features = 33, .out_features = 5, .latent = false};
          const QConv2dOptions conv{.in_channels = 3, .out_channels = 5, .kernel_size = {3, 3}, .latent = false};
          std::shared_ptr<IntegerLayer> layer;
          if (convolution && bits == 8) layer = std::make_shared<Q8Conv2dImpl>(conv);
          if (convolution && bits == 4) layer = std::make_shared<Q4Conv2dImpl>(conv);
          if (!convolution && bits == 8) layer = std::make_shared<Q8LinearImpl>(linear);
          if (!convolution && bits == 4) layer = std::make_shared<Q4LinearImpl>(linear);
          layer->prepare_params();
          const at::Tensor start = layer->weight.clone();
          const float scale_w = layer->scale_w.item<float>();
          const auto [first, last] =
              train_by_mix(*layer, convolution ? conv_task() : linear_task(), 150,
                           {.lr = 0.03, .beta1 = 0.9, .beta2 = 0.99, .renew_scale_every = renew});
          EXPECT_LT(last, 0.25 * first);
          EXPECT_EQ(layer->weight.scalar_type(), at::kChar);
          EXPECT_STREQ(layer->weight_form(), "int8");
          const int hi = (1 << (bits - 1)) - 1;
          EXPECT_GE(layer->weight.min().item<int>(), -hi - 1);
          EXPECT_LE(layer->weight.max().item<int>(), hi);
          EXPECT_GT(layer->weight.ne(start).sum().item<int>(), layer->weight.numel() / 2);
          EXPECT_EQ(layer->scale_w.item<float>() != scale_w, renew > 0);
        }
}

TEST(BinaryWeights, LearnTheSignsOfAMap) {
  // A map of signs times one scale: what a 1-bit layer on +-1 inputs can hold exactly.
  const at::Tensor x = numbers({256, 33}, 1).sign();
  const Task task{x, x.mm(numbers({33, 5}, 2).sign()).mul(0.1)};
  for (const bool latent : {false, true})
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      SCOPED_TRACE(testing::Message() << "latent " << latent << ", seed " << seed);
      at::manual_seed(seed);
      BinaryLinearImpl layer(BinaryLinearOptions{.in_features = 33, .out_features = 5, .latent = latent});
      const auto [first, last] = latent ? train_by_mix(layer, task, 150, {.lr = 0.03, .beta1 = 0.9, .beta2 = 0.99})
                                        : train_by_mix(layer, task, 150, {.lr = 0.003, .beta1 = 0.9, .beta2 = 0.9});
      EXPECT_LT(last, 0.5 * first);
      EXPECT_EQ(layer.weight.scalar_type(), latent ? at::kFloat : at::kChar);
      if (latent) {
        EXPECT_TRUE(layer.weight.requires_grad());
      }
    }
}

TEST(FloatWeights, TrainWithTorch) {
  for (const LayerCase& param : every_layer()) {
    if (!param.latent || param.x[static_cast<std::size_t>(param.axis)] != 33) continue;
    for (const bool adam : {false, true})
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE(testing::Message() << param.name << (adam ? " Adam" : " SGD") << ", seed " << seed);
        at::manual_seed(seed);
        const auto layer = param.make(true);
        const at::Tensor x = numbers({96, 33}, 1);
        const Task task{x, x.mm(numbers({33, 65}, 2)).div(std::sqrt(33))};
        torch::optim::SGD sgd(layer->parameters(), torch::optim::SGDOptions(layer->weight_bits() == 1 ? 2 : 4));
        torch::optim::Adam by_adam(layer->parameters(), torch::optim::AdamOptions(0.02));
        const auto [first, last] = train(*layer, task, 60, [&](int) {
          EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
          if (adam)
            by_adam.step();
          else
            sgd.step();
          layer->zero_grad();
        });
        EXPECT_LT(last, 0.6 * first);
        EXPECT_EQ(layer->weight.scalar_type(), at::kFloat);
        EXPECT_TRUE(layer->weight.requires_grad());
      }
  }
}

}  // namespace
}  // namespace bie::layers::test
