// Tensors that outlive the mode in which a layer made them.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

namespace bie::layers {

/// While one lives, operators make tensors without a graph that can be trained, saved for a backward pass and counted
/// by version later on; in inference mode they could never be.
class OrdinaryTensors {
  const c10::InferenceMode off_{false};
  const at::NoGradGuard no_grad_;
};

}  // namespace bie::layers
