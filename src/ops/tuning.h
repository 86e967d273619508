// Which row of a CUDA table was found fastest for a shape: measured once, remembered for later processes.
//
// The file gemm_tuning.tsv lies in $BIE_CACHE_DIR, else $XDG_CACHE_HOME/bie, else $HOME/.cache/bie. A line is a GPU's
// name, its architecture and driver, this library's version, table, m (a power of two), n, k and the row's name. It is
// replaced in one step under a lock, so two writers lose nothing; a damaged file is ignored with one warning.
#pragma once

#include "bie/kernels/cuda/gemm.h"

namespace bie::ops {

/// The row that was found fastest for such a shape on such a GPU, or null.
const kernels::cuda::GemmKernel* tuned_row(const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape,
                                           const kernels::cuda::Gpu& gpu);

/// Times every row that fits, about 0.1 s at most, remembers the fastest and returns its index.
int tune(const char* op, const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape, int device);

}  // namespace bie::ops
