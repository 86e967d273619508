// The values that backward passes multiply, element by element, and the sum of integer gradients
// (docs/spec/binary-linear.md#backward, docs/spec/nbit-linear.md#backward-at-8-bits). Arrays are dense.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// The codes of a quantiser: its step is max(scale, floor).
struct CodeBounds {
  float lo, hi, floor;
};

/// Passes over `count` elements; Status::bad_shape where count is negative.
struct GradientKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  /// out = clamp(rint(x / step), lo, hi) * by; integer bounds below 2^22.
  Status (*quantized_values)(const float* x, std::int64_t count, float scale, const CodeBounds&, float by, float* out,
                             const Parallel&);
  /// out = code * scale.
  Status (*code_values)(const std::int8_t* codes, std::int64_t count, float scale, float* out, const Parallel&);
  /// grad = 0 where w / step lies outside [lo, hi].
  Status (*mask_clipped)(float* grad, const float* w, std::int64_t count, float scale, const CodeBounds&,
                         const Parallel&);
  /// out = sgn(t) * scale, sgn(0) = 0. t: f32, bf16, f16 or s8.
  Status (*sign_values)(const void* t, Dtype dtype, std::int64_t count, float scale, float* out, const Parallel&);
  /// out = sgn(t), -1, 0 or 1; out may be t.
  Status (*sign_codes)(const std::int8_t* t, std::int64_t count, std::int8_t* out, const Parallel&);
  /// sum = clamp(sum + grad, -127, 127).
  Status (*accumulate)(std::int8_t* sum, const std::int8_t* grad, std::int64_t count, const Parallel&);
};
Table<GradientKernel> gradient_table();

}  // namespace bie::kernels
