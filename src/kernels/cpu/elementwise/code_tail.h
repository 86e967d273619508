// The driver of code_tail, which block_tail runs too.
#pragma once

#include "bie/kernels/code_tail.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {

Status run_code_tail(const BlockTailPasses& tail, const CodeTailPasses& codes, const CodeTailShape& shape,
                     const CodeTailCall& call, const Parallel& parallel);

}  // namespace bie::kernels::cpu
