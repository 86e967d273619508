// The definition of s8xs8_conv2d.
#include "bie/kernels/int8_conv2d.h"

#include "kernels/reference/loops.h"

namespace bie::kernels::reference {

const Conv2dKernel s8xs8_conv2d = Conv2d<Int8>::kernel("s8xs8_conv2d_reference");

}  // namespace bie::kernels::reference
