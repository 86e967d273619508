// The C++ functions of bie/ops/embedding.h.
#include "bie/ops/embedding.h"

#include "ops/dispatcher.h"

namespace bie::ops {

using OptInt = std::optional<std::int64_t>;

at::Tensor binary_embedding(const at::Tensor& indices, const at::Tensor& weight, const at::Tensor& scale,
                            const EmbeddingOptions& o) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t, OptInt,
                         std::optional<at::ScalarType>, const OptTensor&)>("bie::binary_embedding");
  return op.call(indices, weight, scale, o.embedding_dim, o.padding_idx, std::nullopt, none_if_undefined(o.anchor));
}

at::Tensor binary_embedding_bag(const at::Tensor& indices, const at::Tensor& weight, const EmbeddingOptions& o) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, const at::Tensor&, OptInt, OptInt, const OptTensor&)>(
      "bie::binary_embedding_bag");
  return op.call(indices, weight, o.embedding_dim, o.padding_idx, none_if_undefined(o.anchor));
}

}  // namespace bie::ops
