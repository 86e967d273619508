// The definition of b1xb1_gemm.
#include "bie/kernels/binary_gemm.h"

#include "kernels/reference/loops.h"

namespace bie::kernels::reference {

const GemmKernel b1xb1_gemm = Gemm<Binary>::kernel("b1xb1_gemm_reference");

}  // namespace bie::kernels::reference
