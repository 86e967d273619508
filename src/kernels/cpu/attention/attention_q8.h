// The parts of a block of attention_q8, its integer products (a tile) and the float passes around them.
#pragma once

#include <cstdint>

#include "bie/kernels/attention_q8.h"

namespace bie::kernels::cpu {

inline constexpr int most_q8_groups = 4096 / 32 + 1;

/// The groups of a head.
struct Q8Groups {
  int count;
  std::int16_t size[most_q8_groups];
};
Q8Groups q8_groups(std::int64_t head_size);

/// Byte offsets of the parts of one KV head in a block; the keys come first.
struct Q8Layout {
  std::int64_t key_steps, values, value_steps, bytes;
};
Q8Layout q8_layout(std::int64_t head_size, int groups);
/// Layout with float16 keys, which have no steps.
Q8Layout q8_f16_keys_layout(std::int64_t head_size);

/// Products of integers.
struct AttentionQ8Tile {
  /// sums[j] = sum over i < 4 quads of q[i] * key(i, j), keys [quads][64][4], for the 64 positions.
  void (*scores)(const std::int8_t* q, const std::int8_t* keys, int quads, std::int32_t* sums);
  /// sums[c] = sum over 64 positions j of u[j] * value(j, c), values [16][size][4]; u from 0 to 127, size a multiple of
  /// 16.
  void (*values)(const std::uint8_t* u, const std::int8_t* values, std::int64_t size, std::int32_t* sums);
};

/// Weights of a block's positions.
struct Q8Weights {
  float m, l, b;
  alignas(64) std::uint8_t u[attention_block];
};

struct AttentionQ8Passes {
  /// Codes of a query or key, group by group; `spread` has room for a group's floats.
  void (*spread_codes)(const float* x, const Q8Groups& groups, bool is_key, float* spread, std::int8_t* u,
                       float* steps);
  /// Codes of a value; returns the step.
  float (*codes)(const float* x, std::int64_t size, std::int8_t* u);
  /// Turns products [groups][64] into scores [64].
  void (*scores)(const std::int32_t* products, const float* key_steps, const float* query_steps, int groups,
                 float scale, float* scores);
  /// Turns scores, in place, into softmax weights; positions from `from` to `to` are visible.
  void (*weights)(float* scores, const float* value_steps, std::int64_t from, std::int64_t to, Q8Weights* weights);
  /// o = float(sums) * (b / 127).
  void (*open)(const std::int32_t* sums, std::int64_t size, float b, float* o);
  /// all = fma(f, o, g * all).
  void (*join)(const float* o, float f, float g, std::int64_t size, float* all);
  void (*divide)(const float* all, float l, std::int64_t size, float* result);
};

namespace plain {
extern const AttentionQ8Passes attention_q8_passes;
extern const AttentionQ8Tile attention_q8_tile;
}  // namespace plain
namespace avx2 {
extern const AttentionQ8Passes attention_q8_passes;
extern const AttentionQ8Tile attention_q8_tile;
}  // namespace avx2
namespace avx512 {
extern const AttentionQ8Tile attention_q8_tile;
}

}  // namespace bie::kernels::cpu
