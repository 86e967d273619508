// Causal attention over a cache in blocks of 64 positions, in float32; keys and values are float32, or float16 to which
// they were rounded once. Every kernel gives the same bits, and a row's result depends on its query and on what it sees
// alone. Source: docs/spec/language-models.md#attention.
//
// In a block, of the positions j that the query sees, with S of decoder_rows.h and e of exact_math.h:
//
//     s(j) = S(q * k(j)) * scale;  with a cap:  s(j) = cap * tanh(s(j) / cap), tanh of exact_math.h
//     m = max s(j), NaN where any is;  p(j) = e(s(j) - m);  l = S(p), p of other positions being 0
//     o(c) = fma(p(j), v(j, c), o(c)) from 0, j rising
//
// Blocks 16 i ... 16 i + 15 are a segment and joined in rising order, then segments in rising order; blocks without a
// seen position are left out. The first one gives M, L, O = m, l, o; joined with the next, N = max(M, m), g = e(M - N),
// f = e(m - N), L = fma(f, l, g * L), O(c) = fma(f, o(c), g * O(c)), M = N. The result is O(c) / L.
#pragma once

#include <cstdint>

#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

inline constexpr std::int64_t attention_block = 64;    ///< positions
inline constexpr std::int64_t attention_segment = 16;  ///< blocks

/// Query head h reads KV head h / (heads / kv_heads).
struct AttentionShape {
  std::int64_t heads, kv_heads, head_size;
  float scale;
  float cap = 0;  ///< soft cap of scores; 0: none
};

/// Whether all sizes are positive, KV heads divide the heads and the cap is not negative.
bool is_sound(const AttentionShape& shape);

/// One row: its query, and the positions that it sees.
struct AttentionRow {
  const float* query;         ///< [heads][head_size]
  const void* const* blocks;  ///< block i holds positions 64 i to 64 i + 63
  std::int64_t first, last;   ///< positions that are seen, 0 <= first <= last
  float* result;              ///< [heads][head_size]
};

struct AttentionKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const AttentionShape&);
  /// bad_shape where the shape is not sound.
  Status (*run)(const AttentionShape&, const AttentionRow* rows, std::int64_t count, const Parallel&);
};

/// Kernels over blocks of float32, and of float16.
Table<AttentionKernel> attention_table();
Table<AttentionKernel> attention_f16_table();

/// Bytes of one block: for each KV head its keys [head_size][64], then its values [64][head_size]. A block is aligned
/// to 64 bytes.
std::int64_t attention_block_bytes(const AttentionShape& shape);
std::int64_t attention_f16_block_bytes(const AttentionShape& shape);
/// Stores a key and a value [kv_heads][head_size] at a position of its block.
void store_position(const AttentionShape&, std::int64_t position, const float* key, const float* value, void* block);
void store_f16_position(const AttentionShape&, std::int64_t position, const float* key, const float* value,
                        void* block);

}  // namespace bie::kernels
