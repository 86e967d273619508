// The kernels of attention_q8, best first, and their driver.
#include "kernels/cpu/attention/attention_q8.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "bie/kernels/exact_math.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/attention/decoder_passes.h"
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

Q8Layout q8_f16_keys_layout(std::int64_t head_size) {
  const std::int64_t keys = 2 * attention_block * head_size, codes = attention_block * head_size;
  return {keys, keys, keys + codes, keys + codes + 4 * attention_block};
}

namespace {

/// The larger one, NaN where either is.
float larger(float a, float b) { return b > a || b != b ? b : a; }

/// Keys as codes, whose products with the codes of the query are exact.
class CodeKeys {
 public:
  CodeKeys(const AttentionShape& s, const AttentionQ8Tile& tile, const AttentionQ8Passes& passes, const DecoderPasses&)
      : shape_(s), tile_(tile), passes_(passes), groups_(q8_groups(s.head_size)) {}

  Q8Layout layout() const { return q8_layout(shape_.head_size, groups_.count); }
  std::int64_t bytes() const {
    return 4 * (attention_block * groups_.count + shape_.head_size + groups_.count) + code_bytes();
  }
  /// Takes memory of so many bytes for one query.
  void ask(const float* query, void* memory) {
    products_ = static_cast<std::int32_t*>(memory);
    auto* const spread = reinterpret_cast<float*>(products_ + attention_block * groups_.count);
    steps_ = spread + shape_.head_size;
    query_ = reinterpret_cast<std::int8_t*>(steps_ + groups_.count);
    passes_.spread_codes(query, groups_, /*is_key=*/false, spread, query_, steps_);
  }
  void scores(const char* block, float* s) const {
    const auto* keys = reinterpret_cast<const std::int8_t*>(block);
    const std::int8_t* query = query_;
    for (int g = 0; g < groups_.count; ++g) {
      const int n = groups_.size[g];
      tile_.scores(query, keys, n / 4, products_ + attention_block * g);
      query += n;
      keys += attention_block * n;
    }
    passes_.scores(products_, reinterpret_cast<const float*>(block + layout().key_steps), steps_, groups_.count,
                   shape_.scale, s);
  }

 private:
  std::int64_t code_bytes() const { return (shape_.head_size + 3) / 4 * 4; }

  const AttentionShape& shape_;
  const AttentionQ8Tile& tile_;
  const AttentionQ8Passes& passes_;
  Q8Groups groups_;
  std::int32_t* products_ = nullptr;
  float* steps_ = nullptr;
  std::int8_t* query_ = nullptr;
};

/// Keys as float16.
class HalfKeys {
 public:
  HalfKeys(const AttentionShape& s, const AttentionQ8Tile&, const AttentionQ8Passes&, const DecoderPasses& passes)
      : shape_(s), passes_(passes) {}

  Q8Layout layout() const { return q8_f16_keys_layout(shape_.head_size); }
  std::int64_t bytes() const { return 4 * attention_block * shape_.head_size; }
  void ask(const float* query, void* memory) {
    query_ = query;
    memory_ = static_cast<float*>(memory);
  }
  void scores(const char* block, float* s) const {
    passes_.scores_f16(query_, reinterpret_cast<const std::uint16_t*>(block), shape_.head_size, shape_.scale, memory_,
                       s);
  }

 private:
  const AttentionShape& shape_;
  const DecoderPasses& passes_;
  const float* query_ = nullptr;
  float* memory_ = nullptr;
};

/// Memory of one head while it is computed, but for that of its keys.
struct Q8Memory {
  std::int32_t* sums;
  float *all, *later, *block;

  static std::int64_t bytes(std::int64_t size) { return 4 * 4 * size; }
  Q8Memory(void* memory, std::int64_t size)
      : sums(static_cast<std::int32_t*>(memory)),
        all(reinterpret_cast<float*>(sums + size)),
        later(all + size),
        block(later + size) {}
};

/// Running state of the online softmax over the blocks joined so far.
struct Joined {
  float m, l;
  float* o;
};

void join(const AttentionQ8Passes& passes, const Joined& next, std::int64_t size, Joined* to) {
  const float n = larger(to->m, next.m), g = exact_exp(to->m - n), f = exact_exp(next.m - n);
  to->l = __builtin_fmaf(f, next.l, g * to->l);
  passes.join(next.o, f, g, size, to->o);
  to->m = n;
}

template <class Keys>
void run_head(const AttentionQ8Tile& tile, const AttentionQ8Passes& passes, const DecoderPasses& float_passes,
              const AttentionShape& s, const AttentionRow& row, std::int64_t head, const Keys& keys,
              const Q8Layout& layout, const Q8Memory& memory) {
  const std::int64_t size = s.head_size, at = head / (s.heads / s.kv_heads) * layout.bytes;
  Joined all{0, 0, memory.all}, later{0, 0, memory.later}, block{0, 0, memory.block};
  Joined* segment = &all;  // the first one is what others are joined to
  const std::int64_t first = row.first / attention_block, last = row.last / attention_block;
  for (std::int64_t b = first; b <= last; ++b) {
    const char* const bytes = static_cast<const char*>(row.blocks[b]) + at;
    const bool begins = b == first || b % attention_segment == 0;
    if (begins && b != first) segment = &later;
    Joined& into = begins ? *segment : block;
    float scores[attention_block];
    keys.scores(bytes, scores);
    if (s.cap > 0) float_passes.soft_cap(attention_block, s.cap, scores);
    Q8Weights w;
    passes.weights(scores, reinterpret_cast<const float*>(bytes + layout.value_steps),
                   std::max(row.first - b * attention_block, std::int64_t{0}),
                   std::min(row.last - b * attention_block, attention_block - 1), &w);
    tile.values(w.u, reinterpret_cast<const std::int8_t*>(bytes + layout.values), size, memory.sums);
    passes.open(memory.sums, size, w.b, into.o);
    into.m = w.m;
    into.l = w.l;
    if (!begins) join(passes, block, size, segment);
    if (segment == &later && (b == last || b % attention_segment == attention_segment - 1))
      join(passes, later, size, &all);
  }
  passes.divide(all.o, all.l, size, row.result + head * size);
}

template <class Keys, const AttentionQ8Tile& tile, const AttentionQ8Passes& passes, const DecoderPasses& float_passes>
Status run(const AttentionShape& s, const AttentionRow* rows, std::int64_t count, const Parallel& parallel) {
  if (!takes_q8(s) || count < 0) return Status::bad_shape;
  constexpr std::int64_t work_a_task = 1 << 18;
  std::int64_t seen = 0;
  for (std::int64_t i = 0; i < count; ++i) seen += rows[i].last - rows[i].first + 1;
  const std::int64_t work = std::max<std::int64_t>(1, seen / std::max<std::int64_t>(1, count)) * s.head_size;
  std::atomic<bool> enough{true};
  parallel_for(parallel, count * s.heads, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 Keys keys(s, tile, passes, float_passes);
                 const Q8Layout layout = keys.layout();
                 auto* const memory = static_cast<char*>(
                     workspace(static_cast<std::size_t>(Q8Memory::bytes(s.head_size) + keys.bytes()), Buffer::tile));
                 if (memory == nullptr) {
                   enough.store(false, std::memory_order_relaxed);
                   return;
                 }
                 const Q8Memory parts(memory, s.head_size);
                 for (std::int64_t i = begin; i < end; ++i) {
                   const AttentionRow& row = rows[i / s.heads];
                   keys.ask(row.query + i % s.heads * s.head_size, memory + Q8Memory::bytes(s.head_size));
                   run_head(tile, passes, float_passes, s, row, i % s.heads, keys, layout, parts);
                 }
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

std::int64_t attention_q8_f16_keys_block_bytes(const AttentionShape& s) {
  return s.kv_heads * cpu::q8_f16_keys_layout(s.head_size).bytes;
}

namespace {

/// The codes of a value at a place of a block, in the block's part of one KV head.
void store_value(const cpu::Q8Layout& layout, std::int64_t at, const float* value, std::int64_t size, char* head) {
  std::int8_t codes[4096];
  reinterpret_cast<float*>(head + layout.value_steps)[at] = cpu::best_passes().codes(value, size, codes);
  char* const values = head + layout.values + at / 4 * 4 * size + at % 4;
  for (std::int64_t c = 0; c < size; ++c) values[4 * c] = static_cast<char>(codes[c]);
}

}  // namespace

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
    store_value(layout, at, value, size, head);
  }
}

void store_q8_f16_keys_position(const AttentionShape& s, std::int64_t position, const float* key, const float* value,
                                void* block) {
  const std::int64_t at = position % attention_block, size = s.head_size;
  const cpu::Q8Layout layout = cpu::q8_f16_keys_layout(size);
  for (std::int64_t h = 0; h < s.kv_heads; ++h, key += size, value += size) {
    char* const head = static_cast<char*>(block) + h * layout.bytes;
    for (std::int64_t i = 0; i < size; ++i)
      reinterpret_cast<std::uint16_t*>(head)[i * attention_block + at] = f16_from_float(key[i]);
    store_value(layout, at, value, size, head);
  }
}

Table<AttentionKernel> attention_q8_table() {
  using cpu::CodeKeys;
  static const AttentionKernel best_first[] = {
#if defined(BIE_X86)
    {"attention_q8_avx512", Isa::avx512, takes_q8,
     cpu::run<CodeKeys, cpu::avx512::attention_q8_tile, cpu::avx2::attention_q8_passes, cpu::avx2::decoder_passes>},
    {"attention_q8_avx2", Isa::avx2, takes_q8,
     cpu::run<CodeKeys, cpu::avx2::attention_q8_tile, cpu::avx2::attention_q8_passes, cpu::avx2::decoder_passes>},
#endif
    {"attention_q8_portable", Isa::portable, takes_q8,
     cpu::run<CodeKeys, cpu::plain::attention_q8_tile, cpu::plain::attention_q8_passes, cpu::plain::decoder_passes>},
    reference::attention_q8,
  };
  return table_of(best_first);
}

Table<AttentionKernel> attention_q8_f16_keys_table() {
  using cpu::HalfKeys;
  static const AttentionKernel best_first[] = {
#if defined(BIE_X86)
    {"attention_q8_f16_keys_avx512", Isa::avx512, takes_q8,
     cpu::run<HalfKeys, cpu::avx512::attention_q8_tile, cpu::avx2::attention_q8_passes, cpu::avx2::decoder_passes>},
    {"attention_q8_f16_keys_avx2", Isa::avx2, takes_q8,
     cpu::run<HalfKeys, cpu::avx2::attention_q8_tile, cpu::avx2::attention_q8_passes, cpu::avx2::decoder_passes>},
#endif
    {"attention_q8_f16_keys_portable", Isa::portable, takes_q8,
     cpu::run<HalfKeys, cpu::plain::attention_q8_tile, cpu::plain::attention_q8_passes, cpu::plain::decoder_passes>},
    reference::attention_q8_f16_keys,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
