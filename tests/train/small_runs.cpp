#include "tests/train/small_runs.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <utility>

#include "bie/layers/state_dict.h"

namespace bie::train::test {
namespace {

std::pair<at::Tensor, at::Tensor> pictures(std::int64_t count, at::Generator rng, const at::Tensor& prototypes) {
  const at::Tensor labels = at::randint(0, prototypes.size(0), {count}, rng, at::kLong);
  const at::Tensor noise = at::randn({count, 1, prototypes.size(2), prototypes.size(3)}, rng).mul(0.3);
  return {prototypes.index_select(0, labels).add(noise), labels};
}

}  // namespace

data::Dataset separable(std::array<std::int64_t, 2> size) {
  const at::Generator rng(at::detail::createCPUGenerator(5));
  const at::Tensor prototypes = at::randn({3, 1, size[0], size[1]}, rng);
  const auto [train_images, train_labels] = pictures(400, rng, prototypes);
  const auto [test_images, test_labels] = pictures(150, rng, prototypes);
  return {train_images, train_labels, test_images, test_labels, 3, "separable"};
}

data::Dataset few(std::array<std::int64_t, 2> size) {
  data::Dataset data = separable(size);
  for (at::Tensor* train : {&data.train_images, &data.train_labels}) *train = train->slice(0, 0, 64);
  for (at::Tensor* test : {&data.test_images, &data.test_labels}) *test = test->slice(0, 0, 32);
  return data;
}

models::ModelConfig small_config(int bits) { return {"mlp", bits, {1, 4, 5}, 3, 32, 1}; }

std::shared_ptr<models::Classifier> model_of(const models::ModelConfig& config, std::uint64_t seed) {
  at::manual_seed(seed);
  return models::make_model(config);
}

std::shared_ptr<models::Classifier> small_model(int bits, std::uint64_t seed) {
  return model_of(small_config(bits), seed);
}

TrainOptions short_run(std::int64_t epochs) {
  TrainOptions o;
  o.epochs = epochs;
  o.batch = 32;
  o.lr = 5e-3;
  return o;
}

bool same(models::Classifier& a, models::Classifier& b) {
  const layers::StateDict of_a = layers::state_dict(a, /*packed=*/false),
                          of_b = layers::state_dict(b, /*packed=*/false);
  if (of_a.size() != of_b.size()) return false;
  for (const auto& [name, tensor] : of_a)
    if (of_b.count(name) == 0 || tensor.scalar_type() != of_b.at(name).scalar_type() || !tensor.equal(of_b.at(name)))
      return false;
  return true;
}

OneThread::OneThread() : threads_(at::get_num_threads()) { at::set_num_threads(1); }
OneThread::~OneThread() { at::set_num_threads(threads_); }

}  // namespace bie::train::test
