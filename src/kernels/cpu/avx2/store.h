// Scaled accumulators to the output's dtype, eight at a time. Private to this folder.
#pragma once

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx2 {

/// Bit i says whether float(acc[i]) * scale + bias[i] >= 0, i < count <= 64; the others are 0. `bias` may be null.
std::uint64_t signs_of(const std::int32_t* acc, int count, float scale, const float* bias);

}  // namespace bie::kernels::cpu::avx2
