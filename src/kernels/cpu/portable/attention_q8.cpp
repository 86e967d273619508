// The products of attention_q8 for any CPU.
#include "kernels/cpu/attention/attention_q8.h"

namespace bie::kernels::cpu::plain {
namespace {

void scores(const std::int8_t* q, const std::int8_t* keys, int quads, std::int32_t* sums) {
  for (int j = 0; j < attention_block; ++j) sums[j] = 0;
  for (int i = 0; i < quads; ++i, q += 4, keys += 4 * attention_block)
    for (int j = 0; j < attention_block; ++j)
      sums[j] += q[0] * keys[4 * j] + q[1] * keys[4 * j + 1] + q[2] * keys[4 * j + 2] + q[3] * keys[4 * j + 3];
}

void values(const std::uint8_t* u, const std::int8_t* v, std::int64_t size, std::int32_t* sums) {
  for (std::int64_t c = 0; c < size; ++c) sums[c] = 0;
  for (int i = 0; i < attention_block / 4; ++i, u += 4, v += 4 * size)
    for (std::int64_t c = 0; c < size; ++c)
      sums[c] += u[0] * v[4 * c] + u[1] * v[4 * c + 1] + u[2] * v[4 * c + 2] + u[3] * v[4 * c + 3];
}

}  // namespace

const AttentionQ8Tile attention_q8_tile = {scores, values};

}  // namespace bie::kernels::cpu::plain
