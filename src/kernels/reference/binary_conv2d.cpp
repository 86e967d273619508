// The definition of b1xb1_conv2d.
#include "bie/kernels/binary_conv2d.h"

#include "kernels/reference/loops.h"

namespace bie::kernels::reference {

const Conv2dKernel b1xb1_conv2d = Conv2d<Binary>::kernel("b1xb1_conv2d_reference");

}  // namespace bie::kernels::reference
