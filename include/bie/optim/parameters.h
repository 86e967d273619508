// Parameters of a module that an optimizer trains.
#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "bie/optim/diode_mix.h"

namespace bie::optim {

/// Every parameter of the module that training moves, by its name: floats that require grad, and the weights of
/// quantised layers with their bits and scales, or packed where a layer trains them so (a PackedLayer). Call it after
/// prepare_layers, or a layer that prepares itself later is still known by its float weight (which is fine: the tensor
/// stays the same).
std::vector<Param> parameters(torch::nn::Module& module);

}  // namespace bie::optim
