// The contract shared by the integer GEMMs (binary_gemm.h, int8_gemm.h, int4_gemm.h).
//
//     xs  = float(x) + bias                      float32, bias optional
//     q   = code(xs)                             sign bit, or clamp(rint(xs / step), lo, hi) by true division
//     acc = sum over k of q * w                  exact int32
//     y   = float(acc) * scale                   float32, then one conversion to the output's dtype
//
// or, for the next low-bit layer, its codes at once:
//
//     q'  = code(y + bias')                      sign bit, or clamp(rint((y + bias') / step'), -128, 127)
//
// One call reads x once, adds the bias, quantises or packs, multiplies, scales and writes y once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// m rows of activations, n output features, k input features (the contraction). Any sizes >= 0.
struct GemmShape {
  std::int64_t m, n, k;
};

/// Activations [m, k].
struct GemmInput {
  const void* data;
  Dtype dtype;  ///< f32, bf16, f16, or the GEMM's own code type (bits, s8, s4): used as it is, bias and step ignored
  std::int64_t row_stride;  ///< bytes from one row to the next
  const float* bias;        ///< [k] or null
  float step;               ///< step size of the quantiser, > 0; ignored by the binary GEMM
};

/// Result [m, n], as numbers or as codes. Codes are those of float32 results, whatever lies between the layers.
struct GemmOutput {
  void* data;
  Dtype dtype;                  ///< f32, bf16, f16; s32 for the bare accumulator; bits or s8 for codes, pad bits 0
  std::int64_t row_stride;      ///< bytes from one row to the next
  float scale;                  ///< ignored for s32
  const float* bias = nullptr;  ///< codes only: [n] or null, the next layer's
  float step = 1;               ///< s8 only: the next layer's step size, > 0
};

/// One implementation. Weights come in the checkpoint layout of the GEMM's header and are arranged once by `prepack`;
/// the arrangement belongs to the kernel that made it and is never stored on disk.
struct GemmKernel {
  const char* name;  ///< <activation>x<weight>_<op>_<isa>[_<which>]
  Isa isa;
  bool (*accepts)(const GemmShape&);  ///< null: every shape
  std::size_t (*packed_bytes)(std::int64_t n, std::int64_t k);
  void (*prepack)(const void* weight, std::int64_t n, std::int64_t k, void* packed, const Parallel&);
  /// `packed` is aligned to 64 bytes. m = 0 or n = 0 writes nothing; k = 0 writes zeros.
  /// On any status but ok and not_finite the output is untouched.
  Status (*run)(const GemmShape&, const GemmInput&, const void* packed, const GemmOutput&, const Parallel&);
};

using GemmTable = Table<GemmKernel>;

}  // namespace bie::kernels
