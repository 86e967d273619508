// Scalar readers of every layout, shared by the reference kernels. Never optimised.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bie/kernels/attention_q8.h"
#include "bie/kernels/conv2d.h"
#include "bie/kernels/decoder_rows.h"
#include "bie/kernels/double_gemm.h"
#include "bie/kernels/float_gemm.h"
#include "bie/kernels/gemm.h"
#include "bie/kernels/half_gemm.h"
#include "bie/kernels/mixed_gemm.h"
#include "bie/kernels/packing.h"
#include "bie/kernels/quantize.h"
#include "bie/kernels/sigmoid.h"
#include "bie/kernels/weight_only_q8.h"
#include "kernels/arithmetic/codes.h"
#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels::reference {

extern const GemmKernel b1xb1_gemm, s8xs8_gemm, s4xs4_gemm;
extern const Conv2dKernel b1xb1_conv2d, s8xs8_conv2d, s4xs4_conv2d;
extern const SignPackKernel sign_pack;
extern const Int4PackKernel int4_pack;
extern const QuantizeKernel quantize_rows;
extern const WeightOnlyGemmKernel weight_only_gemm, weight_only_q8;
extern const MixedGemmKernel mixed_gemm;
extern const FloatGemmKernel float_gemm;
extern const HalfGemmKernel f16_gemm, bf16_gemm;
extern const DoubleGemmKernel double_gemm;
extern const DecoderRowsKernel decoder_rows;
extern const AttentionKernel attention, attention_f16, attention_q8, attention_q8_f16_keys;
extern const SigmoidKernel sigmoid;

inline int sign_at(const void* row, std::int64_t i) {
  return (static_cast<const std::uint8_t*>(row)[i / 8] >> (i % 8)) & 1 ? 1 : -1;
}

inline int s8_at(const void* row, std::int64_t i) { return static_cast<const std::int8_t*>(row)[i]; }

inline int s4_at(const void* row, std::int64_t i) {
  const int byte = static_cast<const std::uint8_t*>(row)[i / 2];
  const int nibble = i % 2 == 0 ? byte >> 4 : byte & 15;
  return nibble < 8 ? nibble : nibble - 16;
}

/// xs of an activation.
inline float value_at(const GemmInput& x, std::int64_t row, std::int64_t i) {
  const char* data = static_cast<const char*>(x.data) + row * x.row_stride;
  return load_float(data, x.dtype, i) + (x.bias == nullptr ? 0.0f : x.bias[i]);
}

inline bool all_finite(const GemmShape& shape, const GemmInput& x) {
  if (!is_float(x.dtype)) return true;
  for (std::int64_t row = 0; row < shape.m; ++row)
    for (std::int64_t i = 0; i < shape.k; ++i)
      if (!std::isfinite(value_at(x, row, i))) return false;
  return true;
}

inline std::int64_t in_index(const Conv2dShape& s, ImageLayout layout, std::int64_t n, std::int64_t c, std::int64_t y,
                             std::int64_t x) {
  if (layout == ImageLayout::nchw) return ((n * s.in_c + c) * s.in_h + y) * s.in_w + x;
  return ((n * s.in_h + y) * s.in_w + x) * s.in_c + c;
}

inline std::int64_t out_index(const Conv2dShape& s, ImageLayout layout, std::int64_t n, std::int64_t o, std::int64_t y,
                              std::int64_t x) {
  if (layout == ImageLayout::nchw) return ((n * s.out_c + o) * s.out_h() + y) * s.out_w() + x;
  return ((n * s.out_h() + y) * s.out_w() + x) * s.out_c + o;
}

inline float pixel_value(const Conv2dShape& s, const Conv2dInput& x, std::int64_t n, std::int64_t c, std::int64_t iy,
                         std::int64_t ix) {
  const float bias = x.bias == nullptr ? 0.0f : x.bias[c];
  return load_float(x.data, x.dtype, in_index(s, x.layout, n, c, iy, ix)) + bias;
}

/// Whether a convolution looks at line `at` of an image: a kernel of one line skips lines if its stride does.
inline bool looks_at(std::int64_t at, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
  return kernel > 1 || (at + pad) % stride == 0;
}

/// Whether all pixels that a window reads are finite.
inline bool all_finite(const Conv2dShape& s, const Conv2dInput& x) {
  if (!is_float(x.dtype)) return true;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t c = 0; c < s.in_c; ++c)
      for (std::int64_t iy = 0; iy < s.in_h; ++iy)
        for (std::int64_t ix = 0; ix < s.in_w; ++ix)
          if (looks_at(iy, s.kernel_h, s.stride_h, s.pad_h) && looks_at(ix, s.kernel_w, s.stride_w, s.pad_w) &&
              !std::isfinite(pixel_value(s, x, n, c, iy, ix)))
            return false;
  return true;
}

}  // namespace bie::kernels::reference
