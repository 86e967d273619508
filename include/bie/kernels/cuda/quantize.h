// Quantisers and the means that choose step sizes, on CUDA: the arithmetic of bie/kernels/quantize.h and of
// docs/spec/quantizers.md, under the rules of cuda/gemm.h. x is dense, of dtype f32, bf16 or f16.
//
// Sums are taken in float64 in an order that depends on the count alone. A mean may differ from the CPU's in the last
// bit of its float32, because the order there is another; for equal scales the codes are equal. Values that the CPU
// refuses give a scale of NaN.
#pragma once

#include <cstdint>

#include "bie/kernels/amax_codes.h"
#include "bie/kernels/cuda/device.h"
#include "bie/kernels/dtype.h"

namespace bie::kernels::cuda {

/// Bytes of the workspace that a function below wants, from an 8-byte boundary on; what it leaves there means nothing.
inline constexpr std::int64_t reduction_bytes = (1 << 15) + 64;

/// *out = max(float(c * float(mean|x|)), floor), the mean of nothing being 0; NaN where x holds NaN or infinity.
Status mean_scale(const void* x, Dtype dtype, std::int64_t count, double c, float floor, float* out, void* workspace,
                  const Queue&);

/// mean_scale without a floor, written only if *scale is 0.
Status init_scale(const void* x, Dtype dtype, std::int64_t count, double c, float* scale, void* workspace,
                  const Queue&);

/// q = clamp(rint(x / max(scale, floor)), lo, hi); 0 for NaN and for a scale of NaN.
/// @param poison  null, or a float (not the scale) that becomes NaN where an element of x is not finite.
Status quantize_codes(const void* x, Dtype dtype, std::int64_t count, const Scalar& scale, float floor, int lo, int hi,
                      std::int8_t* q, float* poison, const Queue&);

/// q = clamp(rint(x * bound / amax), lo, bound) in x's dtype, *scale = bound / amax, or 1 where amax <= 2^-24.
/// All NaN where x is not finite, amax is negative or not finite, or x has negative elements and is_unsigned.
/// @param amax  null: max(x).
Status amax_quantize(const void* x, Dtype dtype, std::int64_t count, const Scalar* amax, const AmaxRange& range,
                     void* q, float* scale, void* workspace, const Queue&);

/// The integer gradient of a weight whose gradient is g * gain; zeros where an element is not finite.
/// @param totals  as many totals of g * gain has mixed_product left in the workspace; 0: g is read for them.
Status int8_grad(const void* g, Dtype dtype, std::int64_t count, const Scalar& gain, std::int8_t* q, int totals,
                 void* workspace, const Queue&);

/// The training form of a binary weight. count > 0. *scale is NaN where an element is not finite.
Status binary_init(const void* w, Dtype dtype, std::int64_t count, std::int8_t* q, float* scale, void* workspace,
                   const Queue&);

}  // namespace bie::kernels::cuda
