// Integer codes by the largest element of an array: the quantiser of that name, the integer gradient of a weight and
// the training form of a binary weight (docs/spec/quantizers.md). Arrays are dense, of dtype f32, bf16 or f16.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// The smallest and the largest element; infinity and -infinity if there are none. Undefined unless all are finite.
struct Extremes {
  float min, max;
  bool all_finite;
};

struct AmaxRange {
  float lo, bound;  ///< whole numbers below 2^22
  bool is_unsigned;
};

/// Status::bad_shape where count is negative, bad_dtype for another dtype.
struct AmaxCodesKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  Status (*extremes)(const void* x, Dtype, std::int64_t count, Extremes* out, const Parallel&);
  /// q = clamp(rint(x * bound / amax), lo, bound) in x's dtype, *scale = bound / amax, or 1 where amax <= 2^-24. x is
  /// finite; bad_scale unless amax is finite and >= 0.
  Status (*amax_quantize)(const void* x, Dtype, std::int64_t count, float amax, const AmaxRange&, void* q, float* scale,
                          const Parallel&);
  /// Integer gradient of a weight whose gradient is v = g * gain: q = clamp(rint(v * 127 / amax), -127, 127) with amax
  /// = max(v) if positive, else max|v|. Zeros where an element is not finite or amax is 0.
  Status (*int8_grad)(const void* g, Dtype, std::int64_t count, float gain, std::int8_t* q, const Parallel&);
  /// Training form of a binary weight: *scale = mean|w|, q = the int8 codes of w - mean(w) by its largest element,
  /// those that are 0 replaced by its sign, +1 for 0. count > 0. not_finite where w holds NaN or infinity, bad_scale
  /// where w - mean(w) does.
  Status (*binary_init)(const void* w, Dtype, std::int64_t count, std::int8_t* q, float* scale, const Parallel&);
};
Table<AmaxCodesKernel> amax_codes_table();

}  // namespace bie::kernels
