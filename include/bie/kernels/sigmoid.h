// The logistic function of floats, and what it gates, with a written arithmetic: every kernel gives the same bits.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// With e = exp(-|x|) of docs/spec/nets.md: sigmoid(x) = e / (1 + e) where x < 0, else 1 / (1 + e), each operation
/// rounded to float32. Within 2.5 units in the last place, those of subnormal results within one subnormal; NaN of NaN.
struct SigmoidKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  /// x and y [count]; y may be x. bad_shape for a count below 0.
  Status (*sigmoid)(std::int64_t count, const float* x, float* y, const Parallel&);
  /// y = x * sigmoid(x), the product rounded once more.
  Status (*silu)(std::int64_t count, const float* x, float* y, const Parallel&);
};
Table<SigmoidKernel> sigmoid_table();

}  // namespace bie::kernels
