// What the CPU does for the operators, a file an idea.
#pragma once

#include "bie/kernels/isa.h"
#include "bie/kernels/table.h"
#include "ops/backend/backend.h"

namespace bie::ops::cpu {

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

/// The instruction sets in use; a sentence when BIE_MAX_ISA is not understood.
kernels::IsaSet host_isas(const char* op);
/// The kernel that this CPU runs.
template <class Kernel, class Shape>
const Kernel& chosen(const char* op, const kernels::Table<Kernel>& table, const Shape& shape) {
  return kernels::choose(table, shape, host_isas(op));
}

}  // namespace bie::ops::cpu
