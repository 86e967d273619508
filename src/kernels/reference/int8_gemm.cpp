// The definition of s8xs8_gemm.
#include "bie/kernels/int8_gemm.h"

#include "kernels/reference/loops.h"

namespace bie::kernels::reference {

const GemmKernel s8xs8_gemm = Gemm<Int8>::kernel("s8xs8_gemm_reference");

}  // namespace bie::kernels::reference
