// Operators on weights of packed codes and on embeddings of low-bit rows. The rules of bie/ops.h hold here, except that
// the gradient of a weight goes to a float leaf of the weight's shape, the anchor, whose values are never read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bie/ops.h"

namespace bie::ops {

/// A weight [k, n] of unsigned codes in 32-bit words, which stay packed. In float32
///     W = s * (q - z)   zeros int32 [groups, ceil(n * bits / 32)]: z - 1 packed along n, z in 1 ... 2^bits (GPTQ)
///     W = s * q - z     zeros float [groups, n] (GBA, MBWQ)
///     W = s * (q - h)   zeros undefined, h = 2^(bits - 1)
/// with s = scales[group, j] and the group of packed row i being g_idx[i], or i / group_size.
struct CodedWeightTensors {
  at::Tensor qweight;            ///< int32 [words, n]: ceil(k * bits / 32) words per column, the first code lowest
  at::Tensor scales;             ///< [groups, n] float32, bfloat16 or float16
  at::Tensor zeros;              ///< see above
  std::int64_t bits = 4;         ///< 1, 2, 3, 4, 5, 6 or 8
  std::int64_t group_size = -1;  ///< rows of k that share a scale; -1: all
  at::Tensor g_idx;              ///< int32 or int64 [k], or undefined
  /// int16 (read as unsigned), int32 or int64 [k]: packed row i is input feature q_perm[i]. Undefined or all zero: i.
  at::Tensor q_perm;
  /// Bits and rows of each width in turn (EXL2), each dense in words of its own; bits has no meaning then.
  std::vector<std::int64_t> bit_rows;
};

struct WeightOnlyLinearOptions {
  at::Tensor channel_scale;  ///< k numbers that x is multiplied with, in float32, or undefined
  /// [k, n] of a float dtype that requires grad: where the weight's gradient goes. Its values are never read; it may be
  /// one number expanded.
  at::Tensor anchor;
  at::Tensor panels;  ///< from weight_only_prepack; where the weight was written to since then it is arranged anew
  bool int8_activations = false;  ///< x becomes int8 codes, a step size a row and group: bie/kernels/weight_only_q8.h
};

/// y = x . W + bias, in the order of bie/kernels/weight_only_gemm.h: the same bits for every number of rows, threads
/// and instruction set.
/// @param x     [..., k] float.
/// @param bias  [n] float, added in float32; or undefined.
/// @return [..., n] in x's dtype. On CUDA torch's product of x and W in float32.
/// Backward: grad_x = g . W^T; grad of the anchor = x^T . g [k, n] in its dtype, rows in the order of x's features;
/// grad_bias = sum of g. int8_activations change nothing of it.
/// @throws with int8_activations: a group of more than 131072 rows, panels made without it (and the reverse).
/// Source: BITorch Engine 0.2.6 `MPQLinear`, `MBWQLinear`; Frantar et al. 2022 (GPTQ).
BIE_API at::Tensor weight_only_linear(const at::Tensor& x, const CodedWeightTensors& weight,
                                      const at::Tensor& bias = {}, const WeightOnlyLinearOptions& options = {});
/// An opaque uint8 tensor, derived and never stored. @throws NaN or infinity in scales or zeros, g_idx out of range,
/// q_perm that is no permutation.
BIE_API at::Tensor weight_only_prepack(const CodedWeightTensors& weight, std::int64_t in_features,
                                       bool int8_activations = false);

/// W [k, n] in a float dtype (the scales' where none is named), computed in float32 and rounded once; rows in the order
/// of the input features.
BIE_API at::Tensor weight_only_open(const CodedWeightTensors& weight, std::int64_t in_features,
                                    std::optional<at::ScalarType> dtype = {});
/// The inverse of weight_only_open with the scales and zeros of `weight`, whose words are not read: clamp(rint(v), 0,
/// 2^bits - 1) with v = W / s + z | (W + z) / s | W / s + h; W / s of s = 0 is 0. @throws NaN or infinity.
BIE_API at::Tensor weight_only_pack(const at::Tensor& values, const CodedWeightTensors& weight);

/// Codes of 1 ... 8 bits in int32 words, dense along axis `dim` of a matrix, pad bits 0; and back to `size` of them.
BIE_API at::Tensor pack_words(const at::Tensor& codes, std::int64_t bits, std::int64_t dim = 0);
BIE_API at::Tensor unpack_words(const at::Tensor& words, std::int64_t bits, std::int64_t size, std::int64_t dim = 0);

/// One step on a weight of packed codes, in place: Adam's moments on the gradient of its values W, whose codes are then
/// rounded at random.
/// @param grad         [k, n] float, rows in the order of the input features. Without moments it is the direction u.
/// @param exp_avg_l    [k, n] float32 or bfloat16, or undefined, and exp_avg_s with it.
/// @param rest         [k, n] bfloat16 that is added to W, or undefined; codes are then rounded to the nearest and what
///                     they leave goes there.
/// @param moves_zeros  first z += rate * mean of u over the group, float zeros being of the scales' dtype; whole ones
///                     by that over s, rounded at random into 1 ... 2^bits.
BIE_API void diode_mix_weight_only_(const CodedWeightTensors& weight, const at::Tensor& grad,
                                    const at::Tensor& exp_avg_l, const at::Tensor& exp_avg_s, const at::Tensor& rest,
                                    bool moves_zeros, const DiodeMixStep& step);

/// One step on the rows of a table of signs that a batch used, in place: s = lerp(s, lr * vote, 1 - beta2), a vote
/// being +1 where votes >= 0 and else -1; signs become -sgn(s), 0 counting as +1. Pad bits stay.
/// @param weight     [rows, ceil(dim / 8)] uint8 of packed signs or [rows, dim] bool.
/// @param rows       int64 [count], all different.
/// @param votes      [count, dim] float, or packed signs of them.
/// @param exp_avg_s  [rows, dim or more] float32 or bfloat16.
BIE_API void diode_mix_embedding_(const at::Tensor& weight, const at::Tensor& rows, const at::Tensor& votes,
                                  const at::Tensor& exp_avg_s, std::int64_t embedding_dim, const DiodeMixStep& step);

/// diode_mix_weight_only_ on the rows of a table of codes that a batch used; the moments of others stay, too.
/// @param table      qweight int32 [N, ceil(dim * bits / 32)], scales and float zeros [N, ceil(dim / group_size)];
///                   zeros may be undefined. A row's codes and groups are those of a column of CodedWeightTensors.
/// @param rows       int64 [count], all different.
/// @param grad       [count, dim] float.
/// @param exp_avg_l  [N, dim] float32 or bfloat16, and exp_avg_s.
BIE_API void diode_mix_weight_only_rows_(const CodedWeightTensors& table, const at::Tensor& rows,
                                         const at::Tensor& grad, const at::Tensor& exp_avg_l,
                                         const at::Tensor& exp_avg_s, bool moves_zeros, const DiodeMixStep& step);

struct EmbeddingOptions {
  /// The row that has no gradient; negative: from the end. With signs it gives 0, and a bag leaves it out.
  std::optional<std::int64_t> padding_idx;
  /// [rows, embedding_dim] of a float dtype that requires grad, one number expanded: its gradient is sparse, the sums
  /// of the rows that were used.
  at::Tensor anchor;
};

/// +-scale of the rows named. indices: int32 or int64 of any shape; weight: packed signs [rows, ceil(dim / 8)] uint8;
/// scale: one number per row. @return [..., dim] of `dtype`. Backward: g * scale to each row.
BIE_API at::Tensor binary_embedding(const at::Tensor& indices, const at::Tensor& weight, const at::Tensor& scale,
                                    std::int64_t embedding_dim, at::ScalarType dtype, const EmbeddingOptions& = {});
/// The codes of the rows named, opened: q * scale - zero. `table` is that of diode_mix_weight_only_rows_.
/// @return [..., dim] of `dtype`. Backward: g to each row.
BIE_API at::Tensor weight_only_embedding(const at::Tensor& indices, const CodedWeightTensors& table,
                                         std::int64_t embedding_dim, at::ScalarType dtype,
                                         const EmbeddingOptions& = {});
/// The sign that at least half of a bag's rows have. indices: [bags, rows]; weight: [rows, dim] bool or packed signs.
/// Padding is left out. @return [bags, dim] float32. Backward: g to each row of the bag.
BIE_API at::Tensor binary_embedding_bag(const at::Tensor& indices, const at::Tensor& weight, std::int64_t embedding_dim,
                                        const EmbeddingOptions& = {});

}  // namespace bie::ops
