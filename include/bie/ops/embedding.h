// Tables of low-bit rows that indices look up. Indices are int32 or int64 of any shape; one that is out of range is a
// c10::ValueError.
#pragma once

#include "bie/ops.h"

namespace bie::ops {

struct EmbeddingOptions {
  std::int64_t embedding_dim;                    ///< D
  std::optional<std::int64_t> padding_idx = {};  ///< a row that outputs 0; from the end where negative
  at::Tensor anchor = {};  ///< [N, D] float that requires grad: its gradient is the table's, sparse, of the rows used
};

/// y[..., d] = scale[row] * sgn(bit d of the row), in float32.
/// @param weight  [N, ceil(D/8)] uint8, bit i of byte j is element 8j+i, 1 means +1.
/// @param scale   [N, 1] or [N] float.
/// Source: BITorch Engine 0.2.6 `BinaryEmbeddingForward`.
BIE_API at::Tensor binary_embedding(const at::Tensor& indices, const at::Tensor& weight, const at::Tensor& scale,
                                    const EmbeddingOptions& options);
/// y[b, d] = +1 where at least half of the rows of bag b have bit d, else -1; float32. A padding row is in no bag.
/// @param indices  [b, s].
/// @param weight   [N, D] bool, or packed signs.
/// Source: BITorch Engine 0.2.6 `BinaryEmbeddingBagForward`.
BIE_API at::Tensor binary_embedding_bag(const at::Tensor& indices, const at::Tensor& weight,
                                        const EmbeddingOptions& options);

}  // namespace bie::ops
