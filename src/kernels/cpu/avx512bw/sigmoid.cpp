#include "kernels/cpu/elementwise/sigmoid_loops.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {

const SigmoidPasses avx512bw::sigmoid_passes = {sigmoid, silu};

}  // namespace bie::kernels::cpu
