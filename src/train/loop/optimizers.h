// All parameters of a classifier behind one optimizer: DiodeMix for integer weights and, unless another is asked for,
// floats; torch's AdamW or SGD for floats otherwise.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

#include "bie/models/classifier.h"
#include "bie/optim/diode_mix.h"
#include "bie/train/train_options.h"

namespace bie::train {

class Optimizers {
 public:
  Optimizers(models::Classifier& model, const TrainOptions& options, const Recipe& recipe, std::int64_t steps);

  void zero_grad();
  /// Rates of this step, as a factor of the recipe's.
  void step(double factor);

  layers::StateDict state() const;
  /// Moments go where their parameters are.
  void load_state(const layers::StateDict& state);
  std::int64_t state_bytes() const;
  /// Whether int8 weights are among the parameters.
  bool moves_integers() const { return moves_integers_; }

 private:
  struct Named {
    std::string name;
    at::Tensor tensor;
  };

  std::vector<double> diode_rates_, torch_rates_;
  std::unique_ptr<optim::DiodeMix> diode_;
  std::unique_ptr<torch::optim::Optimizer> torch_;
  std::vector<Named> torch_params_;
  bool moves_integers_ = false;
};

}  // namespace bie::train
