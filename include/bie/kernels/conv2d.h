// The contract shared by the integer convolutions (binary_conv2d.h, int8_conv2d.h, int4_conv2d.h): cross-correlation.
//
//     xs[n,c,y,x]  = float(in) + bias[c]
//     q            = code(xs)                    sign bit, or clamp(rint(xs / step), lo, hi) by true division
//     acc[n,o,y,x] = sum over c, i, j of w[o,c,i,j] *
//                    q[n, first(o) + c, y*stride_h - pad_h + i*dil_h, x*stride_w - pad_w + j*dil_w]
//     out          = float(acc) * scale, then one conversion
//
// Output o reads the in_c / groups channels from first(o) = o / (out_c / groups) * (in_c / groups) on. A code outside
// the image is pad_code, whatever the bias. Implicit GEMM: the image is quantised once, windows are read in place. Rows
// (columns) that a kernel of one row (column) skips are not looked at: NaN there is not refused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bie/kernels/gemm.h"

namespace bie::kernels {

struct Conv2dShape {
  std::int64_t batch, in_c, in_h, in_w, out_c, kernel_h, kernel_w;
  std::int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dil_h = 1, dil_w = 1;
  std::int64_t groups = 1;  ///< divides in_c and out_c
  int pad_code = 0;         ///< 0; for signs 0 or -1

  std::int64_t out_h() const { return out_size(in_h, kernel_h, stride_h, pad_h, dil_h); }
  std::int64_t out_w() const { return out_size(in_w, kernel_w, stride_w, pad_w, dil_w); }
  std::int64_t taps() const { return kernel_h * kernel_w; }
  std::int64_t group_in() const { return in_c / groups; }    ///< channels of one group
  std::int64_t group_out() const { return out_c / groups; }  ///< outputs of one group
  std::int64_t depth() const { return group_in() * taps(); }

 private:
  static std::int64_t out_size(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                               std::int64_t dil) {
    const std::int64_t room = in + 2 * pad - dil * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  }
};

enum class ImageLayout : std::uint8_t { nchw, nhwc };

struct Conv2dInput {
  const void* data;    ///< dense, in `layout`
  Dtype dtype;         ///< f32, bf16, f16, or s8: codes already in [lo, hi], used as they are (signs: v >= 0)
  ImageLayout layout;  ///< nhwc is torch's channels_last
  const float* bias;   ///< [in_c] or null
  float step;          ///< > 0; ignored by the binary convolution
};

/// Epilogue of a convolution up to the codes of the next one, with the arithmetic of code_tail.h without its pool: v =
/// act(out * scale + shift + add), in float32, and the codes of v + bias. All images are NHWC and have the output's
/// shape.
struct Conv2dTail {
  const float *scale, *shift;  ///< [out_c] each, or null: 1, and -0, which changes nothing
  const float* add;            ///< null: nothing is added
  float slope;
  bool cuts;
  float* v;            ///< null: nobody wants it
  std::int8_t* codes;  ///< null: nobody wants them
  const float* bias;   ///< [out_c] or null, of codes
  float step;
  int lo, hi;
  bool signs;
};

struct Conv2dOutput {
  void* data;   ///< dense, in `layout`
  Dtype dtype;  ///< f32, bf16, f16 or s32
  ImageLayout layout;
  float scale;
  const Conv2dTail* tail = nullptr;  ///< of nhwc and f32: what it wants is written in place of data
};

/// One implementation; the rules of GemmKernel hold.
struct Conv2dKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const Conv2dShape&);
  std::size_t (*packed_bytes)(const Conv2dShape&);
  void (*prepack)(const void* weight, const Conv2dShape&, void* packed, const Parallel&);
  /// With a tail it also returns bad_scale if the codes' step is not positive, and not_finite if v + bias of a code is
  /// not finite.
  Status (*run)(const Conv2dShape&, const Conv2dInput&, const void* packed, const Conv2dOutput&, const Parallel&);
};

using Conv2dTable = Table<Conv2dKernel>;

}  // namespace bie::kernels
