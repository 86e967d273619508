// The kernels of attention_q8, best first, and their driver.
#include "kernels/cpu/attention_q8.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "bie/kernels/exact_math.h"
#include "kernels/cpu/panels.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace cpu {

Q8Groups q8_groups(std::int64_t head_size) {
  Q8Groups groups{0, {}};
  for (; head_size >= 32; head_size -= 32) groups.size[groups.count++] = 32;
  if (head_size >= 16) groups.size[groups.count++] = 16;
  return groups;
}

Q8Layout q8_layout(std::int64_t head_size, int groups) {
  const std::int64_t codes = attention_block * head_size, steps = 4 * attention_block;
  return {codes, codes + groups * steps, 2 * codes + groups * steps, 2 * codes + (groups + 1) * steps};
}

namespace {

/// The larger one, NaN where either is.
float larger(float a, float b) { return b > a || b != b ? b : a; }

/// Memory of one head while it is computed.
struct Q8Memory {
  std::int32_t *products, *sums;
  float *spread, *all, *of_block, *query_steps;
  std::int8_t* query;

  static std::size_t bytes(std::int64_t size, int groups) {
    return static_cast<std::size_t>(4 * (attention_block * groups + 4 * size + groups) + size);
  }
  Q8Memory(void* memory, std::int64_t size, int groups) {
    products = static_cast<std::int32_t*>(memory);
    sums = products + attention_block * groups;
    spread = reinterpret_cast<float*>(sums + size);
    all = spread + size;
    of_block = all + size;
    query_steps = of_block + size;
    query = reinterpret_cast<std::int8_t*>(query_steps + groups);
  }
};

void run_head(const AttentionQ8Tile& tile, const AttentionQ8Passes& passes, const AttentionShape& s,
              const AttentionRow& row, std::int64_t head, const Q8Groups& groups, const Q8Layout& layout,
              const Q8Memory& memory) {
  const std::int64_t size = s.head_size, at = head / (s.heads / s.kv_heads) * layout.bytes;
  passes.spread_codes(row.query + head * size, groups, /*is_key=*/false, memory.spread, memory.query,
                      memory.query_steps);
  float m_all = 0, l_all = 0;
  const std::int64_t first = row.first / attention_block;
  for (std::int64_t b = first; b <= row.last / attention_block; ++b) {
    const char* const block = static_cast<const char*>(row.blocks[b]) + at;
    const auto* keys = reinterpret_cast<const std::int8_t*>(block);
    const std::int8_t* query = memory.query;
    for (int g = 0; g < groups.count; ++g) {
      const int n = groups.size[g];
      tile.scores(query, keys, n / 4, memory.products + attention_block * g);
      query += n;
      keys += attention_block * n;
    }
    Q8Weights w;
    passes.weights(memory.products, reinterpret_cast<const float*>(block + layout.key_steps), memory.query_steps,
                   groups.count, s.scale, reinterpret_cast<const float*>(block + layout.value_steps),
                   std::max(row.first - b * attention_block, std::int64_t{0}),
                   std::min(row.last - b * attention_block, attention_block - 1), &w);
    tile.values(w.u, reinterpret_cast<const std::int8_t*>(block + layout.values), size, memory.sums);
    if (b == first) {
      passes.open(memory.sums, size, w.b, memory.all);
      m_all = w.m;
      l_all = w.l;
      continue;
    }
    passes.open(memory.sums, size, w.b, memory.of_block);
    const float n = larger(m_all, w.m), g = exact_exp(m_all - n), f = exact_exp(w.m - n);
    l_all = __builtin_fmaf(f, w.l, g * l_all);
    passes.join(memory.of_block, f, g, size, memory.all);
    m_all = n;
  }
  passes.divide(memory.all, l_all, size, row.result + head * size);
}

template <const AttentionQ8Tile& tile, const AttentionQ8Passes& passes>
Status run(const AttentionShape& s, const AttentionRow* rows, std::int64_t count, const Parallel& parallel) {
  if (!takes_q8(s) || count < 0) return Status::bad_shape;
  constexpr std::int64_t work_a_task = 1 << 18;
  const Q8Groups groups = q8_groups(s.head_size);
  const Q8Layout layout = q8_layout(s.head_size, groups.count);
  std::int64_t seen = 0;
  for (std::int64_t i = 0; i < count; ++i) seen += rows[i].last - rows[i].first + 1;
  const std::int64_t work = std::max<std::int64_t>(1, seen / std::max<std::int64_t>(1, count)) * s.head_size;
  std::atomic<bool> enough{true};
  parallel_for(parallel, count * s.heads, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 void* const memory = workspace(Q8Memory::bytes(s.head_size, groups.count), Buffer::tile);
                 if (memory == nullptr) {
                   enough.store(false, std::memory_order_relaxed);
                   return;
                 }
                 const Q8Memory parts(memory, s.head_size, groups.count);
                 for (std::int64_t i = begin; i < end; ++i)
                   run_head(tile, passes, s, rows[i / s.heads], i % s.heads, groups, layout, parts);
               });
  return enough.load() ? Status::ok : Status::out_of_memory;
}

const AttentionQ8Passes& best_passes() {
#if defined(BIE_X86)
  if (host().isas.has(Isa::avx2)) return avx2::attention_q8_passes;
#endif
  return plain::attention_q8_passes;
}

}  // namespace
}  // namespace cpu

bool takes_q8(const AttentionShape& s) { return is_sound(s) && s.head_size % 16 == 0 && s.head_size <= 4096; }

std::int64_t attention_q8_block_bytes(const AttentionShape& s) {
  return s.kv_heads * cpu::q8_layout(s.head_size, cpu::q8_groups(s.head_size).count).bytes;
}

void store_q8_position(const AttentionShape& s, std::int64_t position, const float* key, const float* value,
                       void* block) {
  const cpu::AttentionQ8Passes& passes = cpu::best_passes();
  const cpu::Q8Groups groups = cpu::q8_groups(s.head_size);
  const cpu::Q8Layout layout = cpu::q8_layout(s.head_size, groups.count);
  const std::int64_t at = position % attention_block, size = s.head_size;
  float spread[32], steps[cpu::most_q8_groups];
  std::int8_t codes[4096];
  for (std::int64_t h = 0; h < s.kv_heads; ++h, key += size, value += size) {
    char* const head = static_cast<char*>(block) + h * layout.bytes;
    passes.spread_codes(key, groups, /*is_key=*/true, spread, codes, steps);
    for (std::int64_t i = 0; i < size; i += 4) std::memcpy(head + (i / 4 * attention_block + at) * 4, codes + i, 4);
    for (int g = 0; g < groups.count; ++g)
      reinterpret_cast<float*>(head + layout.key_steps)[g * attention_block + at] = steps[g];
    reinterpret_cast<float*>(head + layout.value_steps)[at] = passes.codes(value, size, codes);
    char* const values = head + layout.values + at / 4 * 4 * size + at % 4;
    for (std::int64_t c = 0; c < size; ++c) values[4 * c] = static_cast<char>(codes[c]);
  }
}

Table<AttentionKernel> attention_q8_table() {
  static const AttentionKernel best_first[] = {
#if defined(BIE_X86)
    {"attention_q8_avx512", Isa::avx512, takes_q8,
     cpu::run<cpu::avx512::attention_q8_tile, cpu::avx2::attention_q8_passes>},
    {"attention_q8_avx2", Isa::avx2, takes_q8, cpu::run<cpu::avx2::attention_q8_tile, cpu::avx2::attention_q8_passes>},
#endif
    {"attention_q8_portable", Isa::portable, takes_q8,
     cpu::run<cpu::plain::attention_q8_tile, cpu::plain::attention_q8_passes>},
    reference::attention_q8,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
