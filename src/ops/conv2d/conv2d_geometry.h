// Checks common to all convolutions: the filter's form and the output's size.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>

#include "bie/kernels/conv2d.h"

namespace bie::ops {

using OptPair = at::OptionalIntArrayRef;

/// How the window moves, as the operator was called.
struct Movement {
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups = 1;
};

struct Geometry {
  std::int64_t out_c, in_c, kernel_h, kernel_w;
  bool packed;  ///< rows of several codes per byte

  std::int64_t depth(std::int64_t groups) const { return in_c / groups * kernel_h * kernel_w; }
};

/// Refuses unless x is [batch, channels, height, width].
void check_image(const char* op, const at::Tensor& x);

/// The geometry of a filter: [out_c, in_c/groups, kh, kw], or where `packed` rows of `codes_a_byte` in the order
/// [in][kh][kw], labelled [out_c, kh, kw, in_c/groups/codes_a_byte] or flat [out_c, bytes], for which kernel_size is
/// needed. Throws where x, the filter, kernel_size or the movement disagree; `packed_name` is what it calls a packed
/// filter.
Geometry check_filter(const char* op, const at::Tensor& x, const at::Tensor& weight, bool packed,
                      std::int64_t codes_a_byte, const char* packed_name, OptPair kernel_size, const Movement& move);

/// The shape of a prepack operator's filter with those checks; x is not there.
kernels::Conv2dShape packed_filter_shape(const char* op, const at::Tensor& weight, std::int64_t codes_a_byte,
                                         std::int64_t in_channels, at::IntArrayRef kernel_size,
                                         std::int64_t groups = 1);

std::array<c10::SymInt, 4> output_sizes(const char* op, const at::Tensor& x, const Geometry& g, const Movement& move);
/// In x's memory format and dtype, float32 for an x of codes.
at::Tensor empty_output(const char* op, const at::Tensor& x, const Geometry& g, const Movement& move);
kernels::Conv2dShape kernel_shape(const at::Tensor& x, const Geometry& g, const Movement& move);

/// Signs with their padding of -1: int8 or floats [batch, channels, height, width].
at::Tensor padded_with_minus_one(const at::Tensor& signs, at::IntArrayRef padding);

/// Gradients of the image and of the filter, products of float32 g with `values` and `filter`; undefined where not
/// wanted.
std::tuple<at::Tensor, at::Tensor> float_conv_grads(const at::Tensor& g, const at::Tensor& values,
                                                    const at::Tensor& filter, const Movement& move, bool want_x,
                                                    bool want_weight);

/// A filter [out_c, in_c/groups, kh, kw] of floats or codes as one of a single group: zeros between the groups. For the
/// kernels of CUDA, whose windows read all channels of a pixel.
at::Tensor one_group(const at::Tensor& filter, std::int64_t groups);

}  // namespace bie::ops
