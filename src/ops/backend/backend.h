// What a device does for the operators: one implementation a device (cpu/, cuda/), an interface an idea. Operators
// check, shape and differentiate; they ask the backend of their tensors for everything that differs between devices.
#pragma once

#include <ATen/core/Tensor.h>

namespace bie::ops {

class BlockTails;
class ConvGrads;
class DiodeMixSteps;
class Embeddings;
class Gradients;
class InputGradients;
class Packing;
class Products;
class Quantizers;
class Tuning;
class WeightOnly;

struct Backend {
  const BlockTails& block_tails;
  const ConvGrads& conv_grads;
  const DiodeMixSteps& diode_mix;
  const Embeddings& embeddings;
  const Gradients& gradients;
  const InputGradients& input_gradients;
  const Packing& packing;
  const Products& products;
  const Quantizers& quantizers;
  const Tuning& tuning;
  const WeightOnly& weight_only;
};

/// That of a device; tensors without values (meta) are sized as the CPU's are. A sentence where this build has none.
const Backend& backend_of(const char* op, at::Device device);
inline const Backend& backend_of(const char* op, const at::Tensor& tensor) { return backend_of(op, tensor.device()); }

}  // namespace bie::ops
