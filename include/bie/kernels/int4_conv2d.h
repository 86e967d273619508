// s4xs4 convolution: codes in [-8, 7].
#pragma once

#include "bie/kernels/conv2d.h"
#include "bie/kernels/int4_gemm.h"

namespace bie::kernels {

/// Weight: packed int4 rows [out_c, ceil(in_c*kernel_h*kernel_w / 2)], a row in the order [in_c][kernel_h][kernel_w].
/// Status::too_deep for in_c * kernel_h * kernel_w > max_k_s4.
/// Source: BITorch Engine 0.2.6 `Q4Conv2dCutlass` (which convolves half of the channels; this is the true convolution).
Conv2dTable s4xs4_conv2d_table();

}  // namespace bie::kernels
