// The kernels of attention, best first, and their driver.
#include "bie/kernels/attention.h"

#include <algorithm>
#include <atomic>

#include "kernels/arithmetic/float_bits.h"
#include "kernels/check.h"
#include "kernels/cpu/attention/decoder_passes.h"
#include "kernels/cpu/panels.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

template <const cpu::DecoderPasses& passes, bool halves>
Status run(const AttentionShape& s, const AttentionRow* rows, std::int64_t count, const Parallel& parallel) {
  if (!is_sound(s) || count < 0) return Status::bad_shape;
  constexpr std::int64_t work_a_task = 1 << 16;
  std::int64_t seen = 0;
  for (std::int64_t i = 0; i < count; ++i) seen += rows[i].last - rows[i].first + 1;
  const std::int64_t work = std::max<std::int64_t>(1, seen / std::max<std::int64_t>(1, count)) * s.head_size;
  std::atomic<bool> enough{true};
  parallel_for(parallel, count * s.heads, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t floats = cpu::attention_memory(s.head_size, halves);
                 auto* const memory =
                     static_cast<float*>(cpu::workspace(static_cast<std::size_t>(4 * floats), cpu::Buffer::tile));
                 if (memory == nullptr) {
                   enough.store(false, std::memory_order_relaxed);
                   return;
                 }
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t head = i % s.heads, kv_head = head / (s.heads / s.kv_heads);
                   (halves ? passes.attention_f16 : passes.attention)(
                       s, rows[i / s.heads], head, kv_head * 2 * s.head_size * attention_block, memory);
                 }
               });
  return enough.load() ? Status::ok : Status::out_of_memory;
}

template <class Number, class Narrow>
void store(const AttentionShape& s, std::int64_t position, const float* key, const float* value, void* block,
           const Narrow& narrow) {
  const std::int64_t at = position % attention_block, size = s.head_size;
  for (std::int64_t h = 0; h < s.kv_heads; ++h, key += size, value += size) {
    Number* const keys = static_cast<Number*>(block) + h * 2 * size * attention_block;
    Number* const values = keys + size * attention_block;
    for (std::int64_t i = 0; i < size; ++i) keys[i * attention_block + at] = narrow(key[i]);
    for (std::int64_t i = 0; i < size; ++i) values[at * size + i] = narrow(value[i]);
  }
}

}  // namespace

bool is_sound(const AttentionShape& s) {
  return s.heads > 0 && s.kv_heads > 0 && s.head_size > 0 && s.heads % s.kv_heads == 0 && s.cap >= 0;
}

std::int64_t attention_block_bytes(const AttentionShape& s) {
  return 4 * 2 * s.kv_heads * s.head_size * attention_block;
}
std::int64_t attention_f16_block_bytes(const AttentionShape& s) { return attention_block_bytes(s) / 2; }

void store_position(const AttentionShape& s, std::int64_t position, const float* key, const float* value, void* block) {
  store<float>(s, position, key, value, block, [](float x) { return x; });
}
void store_f16_position(const AttentionShape& s, std::int64_t position, const float* key, const float* value,
                        void* block) {
  store<std::uint16_t>(s, position, key, value, block, f16_from_float);
}

Table<AttentionKernel> attention_table() {
  static const AttentionKernel best_first[] = {
#if defined(BIE_X86)
    {"attention_avx2", Isa::avx2, nullptr, run<cpu::avx2::decoder_passes, false>},
#endif
    {"attention_portable", Isa::portable, nullptr, run<cpu::plain::decoder_passes, false>},
    reference::attention,
  };
  return table_of(best_first);
}

Table<AttentionKernel> attention_f16_table() {
  static const AttentionKernel best_first[] = {
#if defined(BIE_X86)
    {"attention_f16_avx2", Isa::avx2, nullptr, run<cpu::avx2::decoder_passes, true>},
#endif
    {"attention_f16_portable", Isa::portable, nullptr, run<cpu::plain::decoder_passes, true>},
    reference::attention_f16,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
