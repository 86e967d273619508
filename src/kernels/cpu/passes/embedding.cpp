#include "kernels/arithmetic/diode_mix.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/arithmetic/random.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/passes/chunks.h"

namespace bie::kernels::cpu {
namespace {

void spread(const std::uint8_t* row, bool is_packed, std::int64_t first, std::int64_t count, std::int32_t* bits) {
  if (!is_packed)
    for (std::int64_t i = 0; i < count; ++i) bits[i] = row[first + i];
  else
    for (std::int64_t i = 0; i < count; ++i) bits[i] = row[(first + i) / 8] >> ((first + i) % 8) & 1;
}

/// chunk is a multiple of 8, so a byte of signs belongs to one chunk; bits behind the last sign stay.
void gather(const std::int32_t* bits, bool is_packed, std::int64_t first, std::int64_t count, std::uint8_t* row) {
  if (!is_packed) {
    for (std::int64_t i = 0; i < count; ++i) row[first + i] = static_cast<std::uint8_t>(bits[i]);
    return;
  }
  for (std::int64_t at = 0; at < count; at += 8) {
    const std::int64_t here = count - at < 8 ? count - at : 8;
    int byte = row[(first + at) / 8] >> here << here;
    for (std::int64_t i = 0; i < here; ++i) byte |= bits[at + i] << i;
    row[(first + at) / 8] = static_cast<std::uint8_t>(byte);
  }
}

void lookup(const std::uint8_t* row, bool is_packed, float scale, std::int64_t dim, void* y, Dtype dtype,
            std::int64_t first) {
  for_chunks(0, dim, [&](std::int64_t at, std::int64_t count) {
    std::int32_t bits[chunk];
    Floats buffer;
    spread(row, is_packed, at, count, bits);
    float* const to = wide_place(y, dtype, first + at, buffer);
    for (std::int64_t i = 0; i < count; ++i) to[i] = bits[i] != 0 ? scale : -scale;
    narrowed(to, count, y, dtype, first + at);
  });
}

void step(std::uint8_t* row, bool is_packed, const float* votes, std::int64_t dim, void* moment, Dtype dtype,
          std::int64_t first, float lr, float d2, std::uint64_t random) {
  for_chunks(0, dim, [&](std::int64_t at, std::int64_t count) {
    std::int32_t bits[chunk];
    Floats buffer;
    auto* const s = const_cast<float*>(widened(moment, dtype, first + at, count, buffer));
    for (std::int64_t i = 0; i < count; ++i) s[i] += d2 * ((votes[at + i] >= 0 ? lr : -lr) - s[i]);
    for (std::int64_t i = 0; i < count; ++i) bits[i] = s[i] > 0 ? 0 : 1;
    gather(bits, is_packed, at, count, row);
    if (dtype == Dtype::f32) return;
    auto* const s16 = static_cast<std::uint16_t*>(moment) + first + at;
    for (std::int64_t i = 0; i < count; ++i)
      s16[i] = bf16_at_random(s[i], static_cast<std::uint32_t>(random_bits(random, first + at + i)));
  });
}

}  // namespace

const EmbeddingPasses BIE_PASS_SET::embedding_passes = {lookup, step};

}  // namespace bie::kernels::cpu
