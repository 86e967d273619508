// Tables of signs by torch's operators.
#include "ops/backend/embeddings.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include "ops/backend/backend.h"
#include "ops/weight_only/random_tensors.h"

namespace bie::ops::cuda {
namespace {

class CudaEmbeddings final : public Embeddings {
  void lookup(const char*, const at::Tensor& table, const at::Tensor& scale, const at::Tensor& indices,
              std::int64_t padding, const at::Tensor& y) const override {
    const at::Tensor signs = unpack_signs(table.index_select(0, indices), y.size(1));
    at::Tensor found = signs * scale.index_select(0, indices).unsqueeze(1);
    if (padding >= 0) found = found.masked_fill(indices.eq(padding).unsqueeze(1), 0);
    y.copy_(found);
  }

  void step(const char*, const at::Tensor& table, const at::Tensor& rows, const at::Tensor& votes,
            const at::Tensor& moment, const DiodeMixStep& o) const override {
    const std::int64_t dim = votes.size(1), stride = moment.size(1);
    const at::Tensor vote = at::where(votes.ge(0), o.lr, -o.lr).to(at::kFloat);
    const at::Tensor old = moment.index_select(0, rows), s = old.narrow(1, 0, dim).to(at::kFloat);
    const at::Tensor moved = s + (vote - s) * (1 - o.beta2), up = moved.gt(0).logical_not();
    at::Tensor kept = moved;
    if (moment.scalar_type() != at::kFloat) {
      const Stream stream(static_cast<std::uint64_t>(o.seed), static_cast<std::uint64_t>(o.stream),
                          static_cast<std::uint64_t>(o.step));
      const at::Tensor elements = rows.unsqueeze(1) * stride + at::arange(dim, rows.options());
      kept = bf16_at_random_of(moved, random_bits_of(stream.start(), elements));
    }
    old.narrow(1, 0, dim).copy_(kept);
    moment.index_copy_(0, rows, old);
    if (table.scalar_type() == at::kBool) {
      table.index_copy_(0, rows, up);
      return;
    }
    at::Tensor bits = pack_signs(at::where(up, 1.0, -1.0).to(at::kFloat));
    if (dim % 8 != 0) {  // pad bits stay
      const std::int64_t mask = (1 << (dim % 8)) - 1;
      const at::Tensor last = table.index_select(0, rows).select(1, -1).bitwise_and(255 - mask);
      bits.select(1, -1).bitwise_and_(mask).bitwise_or_(last);
    }
    table.index_copy_(0, rows, bits);
  }
};

}  // namespace

const Embeddings& embeddings() {
  static const CudaEmbeddings it;
  return it;
}

}  // namespace bie::ops::cuda
