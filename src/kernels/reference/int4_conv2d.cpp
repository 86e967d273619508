// The definition of s4xs4_conv2d.
#include "bie/kernels/int4_conv2d.h"

#include "kernels/reference/loops.h"

namespace bie::kernels::reference {

const Conv2dKernel s4xs4_conv2d = Conv2d<Int4>::kernel("s4xs4_conv2d_reference");

}  // namespace bie::kernels::reference
