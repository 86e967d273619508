// Helpers of the tests of training: separable data, small models, short runs.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "bie/models/classifier.h"
#include "bie/train/trainer.h"

namespace bie::train::test {

/// 400 + 150 noisy copies of one random picture a class, of three classes.
data::Dataset separable(std::array<std::int64_t, 2> size = {4, 5});

/// The first 64 + 32 of them, for large nets.
data::Dataset few(std::array<std::int64_t, 2> size);

/// An mlp with one inner layer of 32 for `separable`.
models::ModelConfig small_config(int bits);
/// A model of the global generator's numbers from that seed.
std::shared_ptr<models::Classifier> model_of(const models::ModelConfig& config, std::uint64_t seed = 1);
std::shared_ptr<models::Classifier> small_model(int bits, std::uint64_t seed = 1);

/// Twelve steps an epoch of `separable`.
TrainOptions short_run(std::int64_t epochs = 8);

/// All tensors are equal, bit for bit.
bool same(models::Classifier& a, models::Classifier& b);

/// The same sums on every machine, however busy: one thread.
class OneThread : public testing::Test {
 protected:
  OneThread();
  ~OneThread() override;

 private:
  int threads_;
};

}  // namespace bie::train::test
