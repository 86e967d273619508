// The steps of DiodeMix (docs/spec/optimizer.md): one pass over a parameter, its gradient and its moments.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// One parameter of a step. Everything is dense and in one order of memory.
struct DiodeMixTensor {
  void* param;       ///< floats, or int8
  const void* grad;  ///< of the param's dtype for floats, else s8 or f32
  void *l, *s;       ///< moments, f32 or bf16; bf16 is rounded at random
  std::int64_t count;
  std::uint64_t random;  ///< where the random_bits of this parameter and step start (src/kernels/arithmetic/random.h)
  float rate;            ///< Adam's step size with its bias corrected
  int bits;              ///< codes: 8 or 4
};

struct AdamNumbers {
  float b1, b2, d1, d2, eps, decay;  ///< d1 and d2 are 1 - beta
};
struct SignNumbers {
  float d1, d2, lr;  ///< 1 - beta1, 1 - beta2
};

/// Status::bad_shape where a count is negative, bad_dtype for a dtype that is not listed here.
struct DiodeMixKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  /// Adam on floats. param: f32, bf16 or f16.
  Status (*floats)(const DiodeMixTensor&, Dtype param, Dtype moments, const AdamNumbers&, const Parallel&);
  /// Adam on code * scale; the result over `next` is rounded at random.
  Status (*codes)(const DiodeMixTensor&, float scale, float next, Dtype grad, Dtype moments, const AdamNumbers&,
                  const Parallel&);
  /// l = lerp(l, g, d1), s = lerp(s, lr * sgn(l), d2); weights take the sign of -sgn(s), +1 where s is 0.
  Status (*signs)(const DiodeMixTensor&, Dtype grad, Dtype moments, const SignNumbers&, const Parallel&);
  /// *next = the scale that codes of this mean would start with, mean_to_step * mean|code * scale|, or the scale they
  /// have where that is 0.
  Status (*renewed_scale)(const std::int8_t* codes, std::int64_t count, float scale, double mean_to_step, float* next,
                          const Parallel&);
  /// moment = -sgn(w) * U(0, 1) * 1e-3.
  Status (*first_moment)(const std::int8_t* signs, std::int64_t count, std::uint64_t random, void* moment, Dtype,
                         const Parallel&);
};
Table<DiodeMixKernel> diode_mix_table();

}  // namespace bie::kernels
