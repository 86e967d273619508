// What CUDA does for the operators, a file an idea.
#pragma once

#include "ops/backend/backend.h"

namespace bie::ops::cuda {

const BlockTails& block_tails();
const ConvGrads& conv_grads();
const DiodeMixSteps& diode_mix();
const Embeddings& embeddings();
const Gradients& gradients();
const InputGradients& input_gradients();
const Packing& packing();
const Products& products();
const Quantizers& quantizers();
const Tuning& tuning();
const WeightOnly& weight_only();

}  // namespace bie::ops::cuda
