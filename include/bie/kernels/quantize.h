// Float rows to integer codes, and the mean that chooses a step size.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/packing.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// q = clamp(rint((x + bias) / step), lo, hi): rint is round-half-to-even, the division a true one.
struct QuantizeKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const RowsShape&);
  /// x: f32, bf16 or f16, rows `row_stride` bytes apart; bias [k] or null; -128 <= lo <= hi <= 127; q [rows, k] dense.
  /// Status::not_finite where x + bias holds NaN or infinity (q is then unspecified).
  Status (*run)(const RowsShape&, const void* x, Dtype dtype, std::int64_t row_stride, const float* bias, float step,
                int lo, int hi, std::int8_t* q, const Parallel&);
};
Table<QuantizeKernel> quantize_table();

/// Means of `count` dense elements (f32, bf16, f16), accumulated in float64 in a fixed order, so that neither the
/// kernel nor the number of threads shows; rounded to float32. 0 for count = 0.
struct MeanKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  /// The mean of |x|.
  float (*magnitudes)(const void* x, Dtype dtype, std::int64_t count, const Parallel&);
  float (*elements)(const void* x, Dtype dtype, std::int64_t count, const Parallel&);
};
Table<MeanKernel> mean_table();

/// Whether all codes lie in [lo, hi], int8 bounds.
bool codes_within(const std::int8_t* codes, std::int64_t count, int lo, int hi, const Parallel&);

}  // namespace bie::kernels
