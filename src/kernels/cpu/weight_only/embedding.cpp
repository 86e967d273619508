// The kernels of embedding, best first, and their driver.
#include "bie/kernels/embedding.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

bool in_range(const std::int64_t* indices, std::int64_t count, std::int64_t rows) {
  return std::all_of(indices, indices + count, [rows](std::int64_t i) { return i >= 0 && i < rows; });
}

std::int64_t grain(std::int64_t dim) { return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, dim)); }

Status lookup(const cpu::EmbeddingPasses& passes, const SignTable& t, const float* scales, const std::int64_t* indices,
              std::int64_t count, std::int64_t padding, void* y, Dtype dtype, const Parallel& parallel) {
  if (t.count < 0 || t.dim < 0 || count < 0 || !in_range(indices, count, t.count)) return Status::bad_shape;
  if (!is_float(dtype)) return Status::bad_dtype;
  parallel_for(parallel, count, grain(t.dim), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      if (indices[i] == padding)
        std::memset(static_cast<char*>(y) + row_bytes(dtype, i * t.dim), 0,
                    static_cast<std::size_t>(row_bytes(dtype, t.dim)));
      else
        passes.lookup(t.rows + indices[i] * t.row_size(), t.is_packed, scales[indices[i]], t.dim, y, dtype, i * t.dim);
  });
  return Status::ok;
}

Status step(const cpu::EmbeddingPasses& passes, const SignTable& t, const SignTableStep& o, const Parallel& parallel) {
  if (t.count < 0 || t.dim < 0 || o.count < 0 || o.moment_stride < t.dim) return Status::bad_shape;
  if (!in_range(o.rows, o.count, t.count)) return Status::bad_shape;
  if (o.moment_dtype != Dtype::f32 && o.moment_dtype != Dtype::bf16) return Status::bad_dtype;
  parallel_for(parallel, o.count, grain(t.dim), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      passes.step(t.rows + o.rows[r] * t.row_size(), t.is_packed, o.votes + r * t.dim, t.dim, o.moment, o.moment_dtype,
                  o.rows[r] * o.moment_stride, o.lr, o.d2, o.random);
  });
  return Status::ok;
}

template <const cpu::EmbeddingPasses& passes>
constexpr EmbeddingKernel kernel(const char* name, Isa isa) {
  return {name, isa, nullptr,
          [](const SignTable& t, const float* scales, const std::int64_t* indices, std::int64_t count,
             std::int64_t padding, void* y, Dtype dtype, const Parallel& parallel) {
            return lookup(passes, t, scales, indices, count, padding, y, dtype, parallel);
          },
          [](const SignTable& t, const SignTableStep& o, const Parallel& parallel) {
            return step(passes, t, o, parallel);
          }};
}

}  // namespace

Table<EmbeddingKernel> embedding_table() {
  static const EmbeddingKernel best_first[] = {
#if defined(BIE_X86)
    kernel<cpu::avx2::embedding_passes>("embedding_avx2", Isa::avx2),
#endif
    kernel<cpu::plain::embedding_passes>("embedding_reference", Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
