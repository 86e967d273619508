// s8xs8 convolution: codes in [-128, 127].
#pragma once

#include "bie/kernels/conv2d.h"
#include "bie/kernels/int8_gemm.h"

namespace bie::kernels {

/// Weight: [out_c, in_c, kernel_h, kernel_w] int8. Status::too_deep for in_c * kernel_h * kernel_w > max_k_s8.
Conv2dTable s8xs8_conv2d_table();

}  // namespace bie::kernels
