// Causal attention over a cache of 8-bit codes: both products are of integers and exact. Every kernel gives the same
// bits, and a row's result depends on its query and on what it sees alone.
// Source: docs/spec/language-models.md#attention.
//
// A head is cut into groups of 32 elements, and what is left into one of 16. Queries (after the rotation) and
// keys are spread, group by group of n elements: for h = 1, 2, 4 ... n/2 every pair (i, i + h) with bit h of i clear
// becomes (a + b, a - b); a key is then multiplied by 1/n. Codes of a vector v, of a group or of a value:
//
//     a = max |v|;  a NaN or infinite: d = NaN, all u = 0;  a < 2^-100: d = 0, all u = 0
//     else d = a / 127,  u = rint(v * (127 / a))                            float32, each rounded once; half to even
//
// In a block, of the positions j that the query sees, with S and e of attention.h:
//
//     s(j) = 0;  for every group g, rising:  s(j) = fma(float(Q(g) . K(j,g)), dk(j,g) * dq(g), s(j))
//     s(j) = s(j) * scale;  with a cap:  s(j) = cap * tanh(s(j) / cap)
//     m    = max s(j);  p(j) = e(s(j) - m);  l = S(p)
//     w(j) = p(j) * dv(j);  b = max w(j);  u(j) = rint(w(j) * (127/b));  all u = 0 where b < 2^-100 or b is NaN
//     o(c) = float(sum of u(j) * V(j,c)) * (b / 127)
//
// p and u of other positions are 0. Blocks are joined as attention.h joins them. Where keys are float16, rounded once
// and not spread, s(j) is that of attention.h; the rest is the same.
#pragma once

#include "bie/kernels/attention.h"

namespace bie::kernels {

/// Kernels of the same contract over blocks of their own; they accept head sizes that are multiples of 16.
Table<AttentionKernel> attention_q8_table();

/// Whether head sizes have such groups.
bool takes_q8(const AttentionShape& shape);

/// Bytes of one block, a multiple of 64; a block is aligned to 64 bytes. For each KV head: key codes
/// [head_size / 4][64][4], key steps [groups][64], value codes [16][head_size][4], value steps [64].
std::int64_t attention_q8_block_bytes(const AttentionShape& shape);
/// Stores the codes of a key (after the rotation) and a value [kv_heads][head_size] at a position of its block.
void store_q8_position(const AttentionShape&, std::int64_t position, const float* key, const float* value, void* block);

// Kernels with float16 keys, for layers whose keys are far larger in some channels than in others. For each KV head:
// keys [head_size][64], value codes [16][head_size][4], value steps [64].
Table<AttentionKernel> attention_q8_f16_keys_table();
std::int64_t attention_q8_f16_keys_block_bytes(const AttentionShape& shape);
void store_q8_f16_keys_position(const AttentionShape&, std::int64_t position, const float* key, const float* value,
                                void* block);

}  // namespace bie::kernels
