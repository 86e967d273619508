// The plain loops of decoder_rows and attention: one source for each set of flags, as passes.h has them.
#pragma once

#include <cstdint>

#include "bie/kernels/attention.h"

namespace bie::kernels::cpu {

/// Each takes one vector.
struct DecoderPasses {
  void (*rms_norm)(const float* x, const float* w, float eps, std::int64_t size, float* y);
  void (*rotate)(std::int64_t pairs, bool neighbours, const float* cosine, const float* sine, float* x);
  void (*gate)(std::int64_t count, const float* g, const float* u, float* y);
  void (*add)(std::int64_t count, const float* y, float* x);
  /// One query head. `at` are floats from the begin of a block to the keys of its KV head; `memory` has room for
  /// 2 * head_size floats.
  void (*attention)(const AttentionShape& shape, const AttentionRow& row, std::int64_t head, std::int64_t at,
                    float* memory);
};

namespace plain {
extern const DecoderPasses decoder_passes;
}
namespace avx2 {
extern const DecoderPasses decoder_passes;
}

}  // namespace bie::kernels::cpu
