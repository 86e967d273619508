// The kernels of block_tail, best first, and their driver.
#include "bie/kernels/block_tail.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/elementwise/code_tail.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t elements_a_task = 1 << 15;

std::int64_t grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, elements_a_task / std::max<std::int64_t>(1, elements));
}

/// NHWC, pooled.
void pooled_pixels(const cpu::BlockTailPasses& passes, const BlockTailShape& s, const CodeTailCall& call,
                   const Parallel& parallel) {
  const std::int64_t out_h = s.height / s.pool, out_w = s.width / s.pool;
  const cpu::Bend act{call.slope, call.cuts};
  parallel_for(parallel, s.images * out_h, grain(s.width * s.pool * s.channels),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<float> buffer(static_cast<std::size_t>(s.channels));
                 for (std::int64_t line = begin; line < end; ++line)
                   for (std::int64_t column = 0; column < out_w; ++column) {
                     float* const y = static_cast<float*>(call.y) + (line * out_w + column) * s.channels;
                     for (std::int64_t i = 0; i < s.pool; ++i)
                       for (std::int64_t j = 0; j < s.pool; ++j) {
                         const std::int64_t row = line / out_h * s.height + line % out_h * s.pool + i;
                         const std::int64_t at = (row * s.width + column * s.pool + j) * s.channels;
                         const bool first = i == 0 && j == 0;
                         passes.row(call.x + at, call.scale, call.shift, call.add == nullptr ? nullptr : call.add + at,
                                    act, s.channels, first ? y : buffer.data());
                         if (!first) passes.keep_larger(buffer.data(), s.channels, y);
                       }
                   }
               });
}

template <const cpu::BlockTailPasses& passes, const cpu::CodeTailPasses& codes>
Status run(const BlockTailShape& s, const BlockTailCall& call, const Parallel& parallel) {
  if (s.images < 0 || s.channels < 0 || s.height < 0 || s.width < 0 || s.pool < 1) return Status::bad_shape;
  // With one pixel per image, NCHW and NHWC are the same memory.
  const bool last = s.layout == ImageLayout::nhwc || (s.height == 1 && s.width == 1);
  std::vector<float> scale(static_cast<std::size_t>(s.channels), 1), shift(scale.size(), 0);
  if (call.mean != nullptr)
    norm_numbers(s.channels, call.mean, call.var, call.weight, call.bias, call.eps, scale.data(), shift.data());
  CodeTailCall tail{};
  tail.x = call.x;
  tail.add = call.add;
  tail.scale = scale.data();
  tail.shift = shift.data();
  tail.slope = call.slope;
  tail.cuts = call.cuts;
  tail.y = call.y;
  tail.dtype = Dtype::f32;
  if (last && s.pool > 1) {
    pooled_pixels(passes, s, tail, parallel);
    return Status::ok;
  }
  const CodeTailShape shape = last ? CodeTailShape{s.images * s.height * s.width, s.channels, 1, 1, 1}
                                   : CodeTailShape{s.images, s.channels, s.height, s.width, s.pool};
  return cpu::run_code_tail(passes, codes, shape, tail, parallel);
}

}  // namespace

Table<BlockTailKernel> block_tail_table() {
  static const BlockTailKernel best_first[] = {
#if defined(BIE_X86)
    {"block_tail_avx2", Isa::avx2, nullptr, run<cpu::avx2::block_tail_passes, cpu::avx2::code_tail_passes>},
#endif
    {"block_tail_reference", Isa::reference, nullptr, run<cpu::plain::block_tail_passes, cpu::plain::code_tail_passes>},
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
