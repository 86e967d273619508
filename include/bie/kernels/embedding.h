// Tables of signs (docs/spec/embedding.md, docs/spec/optimizer.md#binary-embeddings): rows looked up, and DiodeMix's
// step on the rows that a batch used.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// Rows of `dim` signs, one per bit (packed rows of the layout in dtype.h, pad bits of any value) or one per byte (0 or
/// 1).
struct SignTable {
  std::uint8_t* rows;
  std::int64_t count, dim;
  bool is_packed;
  std::int64_t row_size() const { return is_packed ? (dim + 7) / 8 : dim; }
};

/// Arguments of a step on the given rows. Element i of row r votes +1 where votes[r][i] >= 0, else -1.
struct SignTableStep {
  const std::int64_t* rows;  ///< all different
  std::int64_t count;
  const float* votes;  ///< [count, dim]
  void* moment;        ///< [table.count, moment_stride] f32 or bf16, rounded at random
  Dtype moment_dtype;
  std::int64_t moment_stride;
  float lr, d2;          ///< d2 = 1 - beta2
  std::uint64_t random;  ///< where the random numbers start, one for each element of the moment
};

/// bad_shape where an index is out of range; nothing is written then.
struct EmbeddingKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  /// y[i] [dim] = +-scales[indices[i]], zeros where the index is `padding`. y: f32, bf16 or f16.
  Status (*lookup)(const SignTable& table, const float* scales, const std::int64_t* indices, std::int64_t count,
                   std::int64_t padding, void* y, Dtype dtype, const Parallel&);
  /// s = lerp(s, lr * vote, d2); the sign becomes -sgn(s), +1 where s is 0. Pad bits stay.
  Status (*step)(const SignTable& table, const SignTableStep&, const Parallel&);
};

Table<EmbeddingKernel> embedding_table();

}  // namespace bie::kernels
