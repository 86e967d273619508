#include "ops/backend/embeddings.h"

#include "bie/kernels/embedding.h"
#include "ops/backend/cpu/backend.h"
#include "ops/backend/cpu/torch_parallel.h"
#include "ops/checks.h"
#include "ops/random.h"

namespace bie::ops::cpu {
namespace {

kernels::SignTable table_of(const at::Tensor& table, std::int64_t dim) {
  return {static_cast<std::uint8_t*>(const_cast<void*>(table.const_data_ptr())), table.size(0), dim,
          table.scalar_type() == at::kByte};
}

class CpuEmbeddings final : public Embeddings {
  void lookup(const char* op, const at::Tensor& table, const at::Tensor& scale, const at::Tensor& indices,
              std::int64_t padding, const at::Tensor& y) const override {
    const kernels::EmbeddingKernel& kernel = chosen(op, kernels::embedding_table(), y.numel());
    check_status(op, kernel.lookup(table_of(table, y.size(1)), scale.const_data_ptr<float>(),
                                   indices.const_data_ptr<std::int64_t>(), indices.numel(), padding,
                                   y.mutable_data_ptr(), kernel_dtype(op, "y", y), torch_parallel()));
  }

  void step(const char* op, const at::Tensor& table, const at::Tensor& rows, const at::Tensor& votes,
            const at::Tensor& moment, const DiodeMixStep& o) const override {
    const kernels::EmbeddingKernel& kernel = chosen(op, kernels::embedding_table(), votes.numel());
    const Stream stream(static_cast<std::uint64_t>(o.seed), static_cast<std::uint64_t>(o.stream),
                        static_cast<std::uint64_t>(o.step));
    check_status(op, kernel.step(table_of(table, votes.size(1)),
                                 {rows.const_data_ptr<std::int64_t>(), rows.numel(), votes.const_data_ptr<float>(),
                                  moment.mutable_data_ptr(), kernel_dtype(op, "exp_avg_s", moment), moment.size(1),
                                  static_cast<float>(o.lr), static_cast<float>(1 - o.beta2), stream.start()},
                                 torch_parallel()));
  }
};

}  // namespace

const Embeddings& embeddings() {
  static const CpuEmbeddings it;
  return it;
}

}  // namespace bie::ops::cpu
