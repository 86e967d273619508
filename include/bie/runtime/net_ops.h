// Operations of an exported net's nodes, and the contents of their lists. docs/spec/nets.md specifies the same by
// bytes.
#pragma once

#include <cstdint>

#include "bie/formats/net_file.h"

namespace bie::runtime {

/// Lists are in the order given here; a blob in brackets may be no_blob. An output of an image may be flat: [c * h *
/// w], in the same order. k is the number of an input's elements, c that of its channels (of its features where it has
/// one size).
enum class NetOp : std::uint32_t {
  /// x f32 [k] (any shape), or codes of it: s8 at 8 bits, bits at 1. y f32 [n] or s32 [n].
  /// ints {bits, n}; floats {step, scale}; blobs {weight, [bias f32 k]}: kernels/gemm.h.
  linear = 1,
  /// x f32 or s8 [c, h, w]. y f32 or s32. ints {bits, out_c, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w,
  /// dil_h,
  /// dil_w, groups, pad_code}; floats {step, scale}; blobs {weight, [bias f32 c]}: kernels/conv2d.h.
  conv2d = 2,
  /// f32. ints {n}; blobs {weight f32 [n, k], [bias f32 n]}: kernels/float_gemm.h.
  float_linear = 3,
  /// f32. ints {out_c, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups}; blobs {weight,
  /// [bias f32 out_c]}.
  float_conv2d = 4,
  /// x f32, then perhaps what is added, of its shape. y f32, or s8: codes of code_bits for the next product. ints
  /// {activation (NetActivation), pool, code_bits or 0}; floats {slope, step}; blobs {[scale f32 c], [shift f32 c],
  /// [bias
  /// f32 c]}: kernels/code_tail.h.
  tail = 5,
  /// x s32. y s8 or bits. ints {pool}; blobs {thresholds s32 c, flips u8 c}: kernels/sign_threshold.h.
  threshold = 6,
  /// f32 [c, h, w] to [c]: kernels/planes.h.
  plane_means = 7,
  /// f32. ints {stride, out_c}: kernels/planes.h.
  strided_planes = 8,
  /// f32 [n]: kernels/planes.h, as all below.
  softmax = 9,
  /// f32 [c, h, w], here and in the next. ints {kernel_h, kernel_w, stride_h, stride_w, top, left, bottom, right}.
  max_pool = 10,
  /// ints as max_pool, then {counts_border}.
  average_pool = 11,
  /// f32 of any shape, here and below. floats {lo, hi}.
  clip = 12,
  sigmoid = 13,
  /// x, then the factors: of its shape, or [c].
  multiply = 14,
  /// One behind the other along the first size; the other sizes are those of the first.
  concat = 15,
  /// [a, b, c]. ints {order of the axes}.
  transpose = 16,
  /// The same elements in the same order in any sizes.
  reshape = 17,
  /// ints {zero, lo, hi}; floats {step}.
  round_to_steps = 18,
  /// blobs {slope f32 c}.
  channel_prelu = 19,
  /// [c, h, w]. ints {top, left, bottom, right}; floats {value}.
  border = 20,
  /// f32 of any shape. ints {function (kernels::Function)}; floats {a, b}: kernels/functions.h, as in the next two.
  function = 21,
  /// f32. ints {first axis that is normed together with those behind it}, or none: all of a sample. floats {eps}; blobs
  /// {[scale f32 n], [shift f32 n]} of the n elements that are normed together.
  layer_norm = 22,
  /// f32 [c, h, w] or [n]. ints {first_channel, first_row, first_column}, 0 for axes that the input does not have; the
  /// sizes of y say how many follow.
  crop = 23,
  /// f32 of one shape: x, then what y is where x compares so with a number, and where it does not. ints {comparison
  /// (kernels::Comparison)}; floats {number}: kernels/planes.h.
  choose = 24,
};
inline constexpr auto last_net_op = NetOp::choose;
inline constexpr const char* net_op_names[] = {
    "",         "linear",       "conv2d",      "float_linear",   "float_conv2d",
    "tail",     "threshold",    "plane_means", "strided_planes", "softmax",
    "max_pool", "average_pool", "clip",        "sigmoid",        "multiply",
    "concat",   "transpose",    "reshape",     "round_to_steps", "channel_prelu",
    "border",   "function",     "layer_norm",  "crop",           "choose",
};

enum class NetActivation : std::int64_t { none, relu, prelu };

/// Operation of a node of a net whose graph was checked.
inline NetOp op_of(const formats::NetNode& node) { return static_cast<NetOp>(node.op); }

}  // namespace bie::runtime
