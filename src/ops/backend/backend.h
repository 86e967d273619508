// Interface between operators and devices: one interface per idea, one implementation per device (cpu/, cuda/).
// Operators check, shape and differentiate; they ask the backend of their tensors for everything that differs between
// devices.
#pragma once

#include <ATen/core/Tensor.h>

/// Calls of(Interface, name) for every interface. `name` is the member of Backend and, in the namespaces cpu and cuda,
/// the function that returns the device's implementation.
#define BIE_BACKEND_INTERFACES(of)                                                                              \
  of(BlockTails, block_tails) of(ConvGrads, conv_grads) of(DiodeMixSteps, diode_mix) of(Embeddings, embeddings) \
      of(Gradients, gradients) of(InputGradients, input_gradients) of(Packing, packing) of(Products, products)  \
          of(Quantizers, quantizers) of(TrainingTails, training_tails) of(Tuning, tuning) of(WeightOnly, weight_only)

#define BIE_DECLARE_CLASS(Interface, name) class Interface;
#define BIE_DECLARE_MEMBER(Interface, name) const Interface& name;
#define BIE_DECLARE_FUNCTION(Interface, name) const Interface& name();

namespace bie::ops {

BIE_BACKEND_INTERFACES(BIE_DECLARE_CLASS)

struct Backend {
  BIE_BACKEND_INTERFACES(BIE_DECLARE_MEMBER)
};

/// The backend of a device; tensors without values (meta) are sized as the CPU's are. Refuses where this build has
/// none.
const Backend& backend_of(const char* op, at::Device device);
inline const Backend& backend_of(const char* op, const at::Tensor& tensor) { return backend_of(op, tensor.device()); }

namespace cpu {
BIE_BACKEND_INTERFACES(BIE_DECLARE_FUNCTION)
}
namespace cuda {
BIE_BACKEND_INTERFACES(BIE_DECLARE_FUNCTION)
}

}  // namespace bie::ops

#undef BIE_DECLARE_CLASS
#undef BIE_DECLARE_MEMBER
#undef BIE_DECLARE_FUNCTION
