// Which row of a CPU table is fastest for a weight: measured, and remembered in the tuning file.
#pragma once

#include "bie/kernels/gemm.h"

namespace bie::ops {

/// The row that was found fastest for weights [n, k] on this CPU with these instruction sets, or null.
const kernels::GemmKernel* tuned_row(const kernels::GemmTable& table, const kernels::GemmShape& shape,
                                     kernels::IsaSet isas);

/// Times the rows that fit on m rows of activations, about 0.1 s at most, remembers the fastest for every m (a weight
/// is arranged once) and returns its index. `code` is the table's: bits, s8 or s4.
int tune(const char* op, const kernels::GemmTable& table, kernels::Dtype code, const kernels::GemmShape& shape);

}  // namespace bie::ops
