// Scaled accumulators to the output's dtype, sixteen at a time. Private to this folder.
#pragma once

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {

void store(const StoreArgs& args);
void store_planes(const StorePlanesArgs& args);

}  // namespace bie::kernels::cpu::avx512
