// The tensors of any module with quantised layers inside, by their state-dict names, and back.
#pragma once

#include <string>

#include "bie/layers/quant_layer.h"

namespace bie::layers {

/// Parameters and buffers by name. With `packed`, each quantised layer has qweight in place of weight; else its weight
/// in the form it trains in. The module is not changed; tensors that needed no packing are shared with it.
StateDict state_dict(torch::nn::Module& module, bool packed);

/// Loads every tensor of the module from `entries`; each quantised layer takes the form it finds: float, int8, or
/// packed in any layout of ours or of BITorch Engine 0.2.6. Nothing is changed unless everything fits: a missing, extra
/// or wrongly shaped entry, NaN, infinity or a negative running variance is a ValueError naming the entry. A DiodeMix
/// that has stepped keeps the old weights' moments: make a new one, or load its state too.
void load_state_dict(torch::nn::Module& module, const StateDict& entries);

}  // namespace bie::layers
