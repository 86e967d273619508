// Checkpoints that BITorch Engine 0.2.6 users have.
#pragma once

#include <string>

#include "bie/layers/state_dict.h"

namespace bie::layers {

/// Loads a file of torch.save, a state dict or BITorch Engine's {'state_dict': ...}, into a module whose layers have
/// the same names: BinaryLinear for its BinaryLinearCutlass, BinaryLinearCuda and BinaryLinearCPP, BinaryConv2d for
/// BinaryConv2dCutlass and BinaryConv2dCPP, Q8Linear, Q4Linear and Q4Conv2d for its cutlass classes. Each layer takes
/// the form of the file, as load_state_dict; a float weight of a CPP class, whose output is the plain product of signs,
/// is packed. BITorch Engine's GPU convolutions with kernels larger than 1 computed no convolution: such weights load
/// with a warning, and the accuracy they had does not carry over.
/// @throws c10::ValueError, one sentence naming the file and the entry; the module is then unchanged.
void load_bie_checkpoint(torch::nn::Module& module, const std::string& path);

}  // namespace bie::layers
