// The definition of s4xs4_gemm.
#include "bie/kernels/int4_gemm.h"

#include "kernels/reference/loops.h"

namespace bie::kernels::reference {

const GemmKernel s4xs4_gemm = Gemm<Int4>::kernel("s4xs4_gemm_reference");

}  // namespace bie::kernels::reference
