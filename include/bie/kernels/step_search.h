// Step sizes of codes from values: the search behind post-training quantisation.
#pragma once

#include <cstdint>

namespace bie::kernels {

/// Rows of floats; of rows longer than this search looks at (2^18 values in all) evenly spaced ones are taken.
struct StepValues {
  const float* data;  ///< [rows, count]
  std::int64_t rows, count;
  int bits;  ///< 8 or 4: codes -128 to 127 or -8 to 7
};

/// steps[row]: the step with the least mean square error of rounding and clipping, among the widest step, which clips
/// no positive value, and 83 more, each 4 % below the one before; positive even where all values are zero.
void least_square_steps(const StepValues&, float* steps);
/// steps[row]: the largest code at the magnitude that `percentile` per cent of the row's values do not exceed.
void percentile_steps(const StepValues&, double percentile, float* steps);

}  // namespace bie::kernels
