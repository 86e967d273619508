// A training step of a weight of packed codes whose place between two codes is kept, and whose scales learn
// (docs/spec/optimizer.md#places-between-codes).
//
//     P = 256 q + r                         the place of a weight, in steps of 1/256 of a code; without a rest P = q
//     W = s (q - c)                         what the network sees; c is the code of zero
//     l = b1 l + d1 g,  m = b2 m + d2 g^2,  u = l / (sqrt(m) + eps)
//     P = clamp(round at random(P - unit (rate u / s + decay (P / unit - c))))        unit = 256, or 1 without a rest
//     q = floor((P + 128) / 256),  r = P - 256 q
//     G = sum of g (q - c) over the group, with the codes before the step; Adam's l, m, u of G, without decay. Terms
//     are
//         added in pieces of `sum_rows` rows, then the pieces
//     s = s - |s| clamp(scale_rate u, -1/2, 1/2), rounded at random to its dtype; a float zero s c moves with it
//
// A gradient whose square is not finite counts as 0. A place whose step is not finite, s being 0, stays where it is.
#pragma once

#include <cstdint>
#include <numeric>

#include "bie/kernels/diode_mix.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"
#include "bie/kernels/weight_format.h"

namespace bie::kernels {

/// Elements of one row that share the largest magnitude of each of their 8-bit moments.
inline constexpr std::int64_t moment_block = 256;
constexpr std::int64_t moment_blocks(std::int64_t n) { return (n + moment_block - 1) / moment_block; }
/// Rows of a group whose terms of a scale's gradient are added first; codes of any width fill whole words in them.
inline constexpr std::int64_t sum_rows = 32;

/// A weight [k, n] of `bits` bits in words as a run of PackedWeight has them, row i in group i / group, and its state.
struct CodeStep {
  std::int64_t k, n, group;
  int bits;  ///< 1, 2, 3, 4, 5, 6 or 8
  int top;   ///< the largest code, at most 2^bits - 1: 2 where codes of 2 bits are ternary
  std::uint32_t* words;
  std::int8_t* rest;  ///< r [k, n], or null: codes are rounded at random
  void* scales;       ///< [groups, n]
  Dtype scale_dtype;  ///< f32, bf16 or f16
  Offset offset;
  void* zeros;       ///< as PackedWeight's; float zeros move with their scales
  const void* grad;  ///< [k, n] of W
  Dtype grad_dtype;  ///< f32, bf16 or f16
  /// Moments [k, n], float, or in 8 bits where `largest` is not null: l int8 and m uint8, of which a code q stands for
  /// largest * (q / 127)^4 with its sign, or (q / 255)^4; rounded at random without bias, m never to 0.
  void *l, *m;
  float* largest;            ///< [2, k, moment_blocks(n)], of l and of m, or null
  float *scale_l, *scale_m;  ///< [groups, n], or null: scales stay
  AdamNumbers adam;
  float rate, scale_rate;  ///< of Adam with its bias corrected; scale_rate is relative to a scale
  std::uint64_t random;    ///< where the random bits start, one for each element of W, then one for each scale
};

/// Status::ok where a step is one at all, else what is wrong with it.
constexpr Status check_step(const CodeStep& o) {
  const bool has_width = ((o.bits >= 1 && o.bits <= 6) || o.bits == 8) && o.top >= 1 && o.top < 1 << o.bits;
  if (o.k < 0 || o.n < 0 || o.group < 1 || !has_width) return Status::bad_shape;
  return is_float(o.scale_dtype) && is_float(o.grad_dtype) ? Status::ok : Status::bad_dtype;
}

/// How many groups end with a whole word together, so that no two threads write one word.
constexpr std::int64_t groups_of_whole_words(const CodeStep& o) {
  return 32 / std::gcd<std::int64_t>(32, o.bits * (o.group < o.k ? o.group : o.k) % 32);
}

struct CodeStepKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  /// bad_shape where a size is negative, a width or a largest code is none of those above or a group has no rows;
  /// bad_dtype.
  Status (*step)(const CodeStep&, const Parallel&);
};
Table<CodeStepKernel> code_step_table();

}  // namespace bie::kernels
