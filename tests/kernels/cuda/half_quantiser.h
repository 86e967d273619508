// Runs kernels/cuda/half_quantiser.cuh, which nvcc alone compiles.
#pragma once

#include <cstdint>
#include <vector>

#include "bie/kernels/dtype.h"

namespace bie::kernels::test {

struct HalfCodes {
  bool settled;
  std::vector<std::int8_t> codes;  ///< of the numbers with the bits 0 ... 65535
};
/// @param dtype  f16 or bf16.
HalfCodes half_codes(Dtype dtype, float step, float lo, float hi);

}  // namespace bie::kernels::test
