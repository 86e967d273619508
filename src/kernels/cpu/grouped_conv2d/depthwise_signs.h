// Depthwise convolutions of signs in channels_last float32 images: pixels of bits, where one instruction handles a tap
// of 512 outputs. Plain code; loops in avx512/depthwise_signs.cpp.
//
// A line of the image becomes bits, a pixel's channels in whole bytes, so that the taps of a window are the same vector
// of neighbouring pixels read at other offsets. Full adders count, per output, the bits that differ from the weights';
// that number of products of -1 then becomes a float. The panels of such a weight hold its form for the grouped driver
// too, as do those of groups of 8 and more signs, which are bytes in NHWC and pixels of bits in NCHW
// (with_sign_planes).
#pragma once

#include "bie/kernels/conv2d.h"
#include "kernels/cpu/panels.h"

namespace bie::kernels::cpu {

/// Whether a weight has panels for it, behind those of the other kernel.
bool has_sign_pixels(const Conv2dShape& shape);
/// Whether it takes x and y of these dtypes and layouts.
bool suits_sign_pixels(const Conv2dShape& shape, const Conv2dInput& x, const Conv2dOutput& y);

std::size_t sign_pixels_bytes(const Conv2dShape& shape);
void prepack_sign_pixels(const void* weight, const Conv2dShape& shape, void* packed);
Status run_sign_pixels(const SignPixels& loops, const Conv2dShape& shape, const Conv2dInput& x, const void* packed,
                       const Conv2dOutput& y, const Parallel& parallel);

/// Offset of its panels, behind those of `others`.
template <const Conv2dKernel& others>
std::size_t sign_pixels_at(const Conv2dShape& s) {
  return (others.packed_bytes(s) + 63) / 64 * 64;
}

/// `others`, but for what suits pixels of bits.
template <const SignPixels& loops, const Conv2dKernel& others>
constexpr Conv2dKernel with_sign_pixels() {
  return {others.name,
          others.isa,
          others.accepts,
          [](const Conv2dShape& s) {
            return has_sign_pixels(s) ? sign_pixels_at<others>(s) + sign_pixels_bytes(s) : others.packed_bytes(s);
          },
          [](const void* weight, const Conv2dShape& s, void* packed, const Parallel& parallel) {
            others.prepack(weight, s, packed, parallel);
            if (has_sign_pixels(s))
              prepack_sign_pixels(weight, s, static_cast<char*>(packed) + sign_pixels_at<others>(s));
          },
          [](const Conv2dShape& s, const Conv2dInput& x, const void* packed, const Conv2dOutput& y,
             const Parallel& parallel) {
            return suits_sign_pixels(s, x, y)
                       ? run_sign_pixels(loops, s, x, static_cast<const char*>(packed) + sign_pixels_at<others>(s), y,
                                         parallel)
                       : others.run(s, x, packed, y, parallel);
          }};
}

}  // namespace bie::kernels::cpu
