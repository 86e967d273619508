#include "kernels/cpu/passes.h"
#include "kernels/cpu/sigmoid_loops.h"

namespace bie::kernels::cpu {

const SigmoidPasses avx512bw::sigmoid_passes = {sigmoid, silu};

}  // namespace bie::kernels::cpu
