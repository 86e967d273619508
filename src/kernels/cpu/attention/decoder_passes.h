// The plain loops of decoder_rows and attention: one source for each set of flags, as passes.h has them.
#pragma once

#include <cstdint>

#include "bie/kernels/attention.h"
#include "bie/kernels/decoder_rows.h"

namespace bie::kernels::cpu {

using Attention = void(const AttentionShape& shape, const AttentionRow& row, std::int64_t head, std::int64_t at,
                       float* memory);

/// Each takes one vector.
struct DecoderPasses {
  void (*rms_norm)(const float* x, const float* w, float eps, std::int64_t size, float* y);
  void (*rotate)(std::int64_t pairs, bool neighbours, const float* cosine, const float* sine, float* x);
  void (*silu_gate)(std::int64_t count, const float* g, const float* u, float* y);
  void (*gelu_gate)(std::int64_t count, const float* g, const float* u, float* y);
  void (*relu2_gate)(std::int64_t count, const float* g, const float* u, float* y);
  void (*add)(std::int64_t count, const float* y, float* x);
  void (*soft_cap)(std::int64_t count, float cap, float* x);
  /// One query head over blocks of float32 and of float16. `at` are numbers from the begin of a block to the keys of
  /// its KV head; `memory` has room for attention_memory() floats.
  Attention *attention, *attention_f16;
  /// scores [64] of a query and a block's float16 keys [size][64]; `memory` has room for these as float32.
  void (*scores_f16)(const float* query, const std::uint16_t* keys, std::int64_t size, float scale, float* memory,
                     float* scores);
};

constexpr std::int64_t attention_memory(std::int64_t head_size, bool halves) {
  return (halves ? 3 + 2 * attention_block : 3) * head_size;
}

namespace plain {
extern const DecoderPasses decoder_passes;
}
namespace avx2 {
extern const DecoderPasses decoder_passes;
}

}  // namespace bie::kernels::cpu
