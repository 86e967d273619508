#include "kernels/cpu/passes.h"
#include "kernels/cpu/sigmoid_loops.h"

namespace bie::kernels::cpu {

const SigmoidPasses BIE_PASS_SET::sigmoid_passes = {sigmoid, silu};

}  // namespace bie::kernels::cpu
