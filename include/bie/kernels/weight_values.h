// A weight of packed codes as floats, floats as its codes, and the step of DiodeMix on it
// (docs/spec/optimizer.md#weight-only-weights).
//
// W is taken in float32, one rounding an operation: s * (q - z) (Offset::zero), s * q - z (value), s * (q - h) with
// h = 2^(bits - 1) (none). Rows of W are input features: packed row i is row input_of[i].
#pragma once

#include <cstdint>

#include "bie/kernels/diode_mix.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"
#include "bie/kernels/weight_format.h"

namespace bie::kernels {

/// How a number between two codes becomes one of them.
struct CodeRounding {
  bool at_random;        ///< else to the nearest, of two the even one
  std::uint64_t random;  ///< where the random numbers start, one for each element of W
};

/// One step on one weight. Its codes move and, where `moves_zeros`, its zeros before them.
struct WeightStep {
  std::uint32_t* words;  ///< the weight's own
  void* zeros;           ///< the weight's own
  const void* grad;      ///< [k, n] of W, f32, bf16 or f16; where l is null the direction u itself
  Dtype grad_dtype;
  void *l, *s;  ///< moments [k, n], f32 or bf16
  Dtype moments;
  std::uint16_t* rest;  ///< bfloat16 [k, n] that is added to W, or null: then codes are rounded at random
  AdamNumbers adam;
  float rate;
  bool moves_zeros;
  std::uint64_t random;
};

/// All refuse what check_weight (weight_only_gemm.h) refuses.
struct WeightValuesKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  /// W [k, n], dense, f32, bf16 or f16; rounded once more for these.
  Status (*open)(const PackedWeight& weight, void* values, Dtype dtype, const Parallel&);
  /// Codes of W [k, n] in float32: clamp(round(v), 0, 2^bits - 1), v = W / s + z | (W + z) / s | W / s + h; a W / s or
  /// (W + z) / s of s = 0 is 0. All words of the weight are written; pad bits are 0.
  Status (*pack)(const PackedWeight& weight, const float* values, const CodeRounding&, std::uint32_t* words,
                 const Parallel&);
  /// l = b1 l + d1 g, s = b2 s + d2 g^2, u = l / (sqrt(s) + eps); w = W + rest - rate * u, then w -= decay * w.
  /// Where zeros move, by the mean of u over the group: z += rate * mean (value), z = z + rate * mean / s rounded at
  /// random into 1 ... 2^bits (zero; no change where s = 0). Then codes as `pack` has them, at random or, with a rest,
  /// to the nearest with what is left in the rest.
  Status (*step)(const PackedWeight& weight, const WeightStep&, const Parallel&);
};

Table<WeightValuesKernel> weight_values_table();

}  // namespace bie::kernels
