// b1xb1 convolution: activations and weights are signs.
#pragma once

#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/conv2d.h"

namespace bie::kernels {

/// Weight: packed sign rows [out_c, ceil(in_c/groups*kernel_h*kernel_w / 8)] uint8, a row in the order
/// [in][kernel_h][kernel_w], bit i of byte j is element 8j+i, 1 means >= 0; pad bits are ignored. bit(v) = v >= 0, so 0
/// and -0 are 1. pad_code -1 pads with the bit 0, 0 leaves what is outside out of the sum. Status::too_deep for
/// in_c / groups * kernel_h * kernel_w > max_k_b1. What `prepack` arranges is for one pad_code and number of groups.
/// Source: BITorch Engine 0.2.6 `BinaryConv2dCutlass` (which pads with -1); XNOR-Net (Rastegari et al. 2016),
/// section 3.
Conv2dTable b1xb1_conv2d_table();

}  // namespace bie::kernels
