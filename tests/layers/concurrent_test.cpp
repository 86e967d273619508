// Calls side by side: evaluation of one layer and of one net, the first time too, and backward passes of one model.
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <atomic>
#include <initializer_list>
#include <thread>
#include <vector>

#include "bie/layers/embedding.h"
#include "bie/layers/weight_only.h"
#include "bie/models/classifier.h"
#include "tests/layers/every_layer.h"

namespace bie::layers::test {
namespace {

/// The threads are the test's own: libgomp's would be unknown to ThreadSanitizer.
struct OneThread : testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] const auto* const one_thread = testing::AddGlobalTestEnvironment(new OneThread);

INSTANTIATE_TEST_SUITE_P(Layers, EveryLayer, testing::ValuesIn(every_layer()),
                         [](const auto& layer) { return layer.param.name; });

/// work(i) in `count` threads that begin together.
template <class Work>
void side_by_side(int count, const Work& work) {
  std::atomic<int> waiting = count;
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      at::init_num_threads();
      for (--waiting; waiting > 0;) std::this_thread::yield();
      work(i);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(EveryLayer, OneLayerServesSeveralThreads) {
  const auto layer = make(), alone = make();
  run_training(*alone, batch());
  StateDict entries = alone->state(false);
  layer->check_state(entries, "")();
  const at::Tensor wanted = run_eval(*alone, batch(2));
  layer->eval();
  std::vector<at::Tensor> found(4);
  for (int round = 0; round < 3; ++round) {
    side_by_side(4, [&](int i) { found[static_cast<std::size_t>(i)] = run(*layer, batch(2)); });
    for (const at::Tensor& y : found) EXPECT_TRUE(y.equal(wanted));
    layer->repack();
  }
}

TEST_P(EveryLayer, AFirstBatchOfSeveralThreadsSetsOneScale) {
  const auto layer = make();
  layer->eval();
  std::vector<at::Tensor> found(4);
  side_by_side(4, [&](int i) { found[static_cast<std::size_t>(i)] = run(*layer, batch()); });
  for (const at::Tensor& y : found) EXPECT_TRUE(y.equal(found[0]));
}

TEST_P(EveryLayer, BackwardPassesSideBySideAddUp) {
  const auto layer = make();
  run_training(*layer, batch());
  if (!at::isFloatingType(layer->weight.scalar_type())) layer->weight.set_grad_dtype(at::kDouble);
  constexpr int threads = 4, passes = 8;
  std::vector<at::Tensor> losses(threads * passes);
  for (at::Tensor& loss : losses) loss = layer->forward(batch()).sum();
  losses[0].backward({}, /*retain_graph=*/true);
  const at::Tensor once = layer->weight.grad().clone();
  layer->weight.mutable_grad() = at::Tensor();
  side_by_side(threads, [&](int i) {
    for (int pass = 0; pass < passes; ++pass) losses[static_cast<std::size_t>(i * passes + pass)].backward();
  });
  EXPECT_TRUE(layer->weight.grad().allclose(once * (threads * passes), 1e-4, 1e-4));
}

TEST(PackedLayers, OneLayerServesSeveralThreads) {
  at::manual_seed(1);
  WeightOnlyLinear linear(WeightOnlyLinearOptions{40, 24, 4, 16, true});
  linear->set_weight_data(at::randn({24, 40}));
  WeightOnlyEmbedding table(WeightOnlyEmbeddingOptions{30, 24, 4, 8});
  table->set_weight_data(at::randn({30, 24}));
  TiedHead head(table);
  for (torch::nn::Module* module : std::initializer_list<torch::nn::Module*>{linear.get(), table.get(), head.get()})
    module->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({3, 40});
  const auto run = [&] { return head->forward(linear->forward(x)); };
  const at::Tensor wanted = run();
  std::vector<at::Tensor> found(4);
  for (int round = 0; round < 3; ++round) {
    linear->repack();
    table->repack();
    side_by_side(4, [&](int i) {
      const c10::InferenceMode mode(i % 2 == 0);  // panels outlive the mode that they were made in
      found[static_cast<std::size_t>(i)] = run();
    });
    for (const at::Tensor& y : found) EXPECT_TRUE(y.equal(wanted));
  }
}

TEST(Classifier, OneNetServesSeveralThreads) {
  for (const char* arch : {"mlp", "resnet20"}) {
    models::ModelConfig config;
    config.arch = arch;
    config.bits = 1;
    config.image = {3, 16, 16};
    config.classes = 10;
    if (config.arch == "mlp") config.hidden = 33;
    if (config.arch != "mlp") config.depth = 1, config.width = 8;
    const auto model = models::make_model(config);
    const at::Tensor x = numbers({5, 3, 16, 16}, 1);
    model->train();
    model->forward(x);
    model->eval();
    std::vector<at::Tensor> found(4);
    side_by_side(4, [&](int i) {
      const at::NoGradGuard no_grad;
      found[static_cast<std::size_t>(i)] = model->forward(x);
    });
    const at::NoGradGuard no_grad;
    for (const at::Tensor& y : found) EXPECT_TRUE(y.equal(model->forward(x))) << arch;
  }
}

}  // namespace
}  // namespace bie::layers::test
