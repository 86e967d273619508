// The kernels of block_tail, best first, and their driver.
#include "bie/kernels/block_tail.h"

#include <algorithm>
#include <vector>

#include "bie/kernels/code_tail.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t elements_a_task = 1 << 15;

std::int64_t grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, elements_a_task / std::max<std::int64_t>(1, elements));
}

/// What the passes want: a and b of a * x + b.
struct Plan {
  const float *x, *add;
  std::vector<float> scale, shift;
  cpu::Bend act;
  float* y;

  Plan(const BlockTailShape& shape, const BlockTailCall& call)
      : x(call.x),
        add(call.add),
        scale(static_cast<std::size_t>(shape.channels), 1),
        shift(static_cast<std::size_t>(shape.channels), 0),
        act{call.slope, call.cuts},
        y(call.y) {
    if (call.mean == nullptr) return;
    norm_numbers(shape.channels, call.mean, call.var, call.weight, call.bias, call.eps, scale.data(), shift.data());
  }
  const float* added(std::int64_t at) const { return add == nullptr ? nullptr : add + at; }
};

/// Pixels of nhwc, which are rows of channels.
void rows(const cpu::BlockTailPasses& passes, const Plan& p, std::int64_t count, std::int64_t channels,
          const Parallel& parallel) {
  parallel_for(parallel, count, grain(channels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      passes.row(p.x + r * channels, p.scale.data(), p.shift.data(), p.added(r * channels), p.act, channels,
                 p.y + r * channels);
  });
}

/// nhwc, pooled.
void pooled_pixels(const cpu::BlockTailPasses& passes, const Plan& p, const BlockTailShape& s,
                   const Parallel& parallel) {
  const std::int64_t out_h = s.height / s.pool, out_w = s.width / s.pool;
  parallel_for(parallel, s.images * out_h, grain(s.width * s.pool * s.channels),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<float> buffer(static_cast<std::size_t>(s.channels));
                 for (std::int64_t line = begin; line < end; ++line)
                   for (std::int64_t column = 0; column < out_w; ++column) {
                     float* const y = p.y + (line * out_w + column) * s.channels;
                     for (std::int64_t i = 0; i < s.pool; ++i)
                       for (std::int64_t j = 0; j < s.pool; ++j) {
                         const std::int64_t row = line / out_h * s.height + line % out_h * s.pool + i;
                         const std::int64_t at = (row * s.width + column * s.pool + j) * s.channels;
                         const bool first = i == 0 && j == 0;
                         passes.row(p.x + at, p.scale.data(), p.shift.data(), p.added(at), p.act, s.channels,
                                    first ? y : buffer.data());
                         if (!first) passes.keep_larger(buffer.data(), s.channels, y);
                       }
                   }
               });
}

/// nchw, pooled or not.
void planes(const cpu::BlockTailPasses& passes, const Plan& p, const BlockTailShape& s, const Parallel& parallel) {
  const std::int64_t plane = s.height * s.width, out_h = s.height / s.pool, out_w = s.width / s.pool;
  parallel_for(parallel, s.images * s.channels, grain(plane), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> buffer(static_cast<std::size_t>(2 * s.width));
    float *const larger = buffer.data(), *const line = larger + s.width;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto c = static_cast<std::size_t>(i % s.channels);
      const auto pass = [&](std::int64_t first, std::int64_t count, float* to) {
        const std::int64_t at = i * plane + first;
        passes.channel(p.x + at, p.scale[c], p.shift[c], p.added(at), p.act, count, to);
      };
      if (s.pool == 1) {
        pass(0, plane, p.y + i * plane);
        continue;
      }
      for (std::int64_t row = 0; row < out_h; ++row) {
        pass(row * s.pool * s.width, s.width, larger);
        for (std::int64_t j = 1; j < s.pool; ++j) {
          pass((row * s.pool + j) * s.width, s.width, line);
          passes.keep_larger(line, s.width, larger);
        }
        passes.pool_line(larger, s.pool, out_w, p.y + (i * out_h + row) * out_w);
      }
    }
  });
}

template <const cpu::BlockTailPasses& passes>
Status run(const BlockTailShape& s, const BlockTailCall& call, const Parallel& parallel) {
  if (s.images < 0 || s.channels < 0 || s.height < 0 || s.width < 0 || s.pool < 1) return Status::bad_shape;
  const Plan plan(s, call);
  // Of one pixel both orders of memory are the same.
  const bool last = s.layout == ImageLayout::nhwc || (s.height == 1 && s.width == 1);
  if (last && s.pool == 1)
    rows(passes, plan, s.images * s.height * s.width, s.channels, parallel);
  else if (last)
    pooled_pixels(passes, plan, s, parallel);
  else
    planes(passes, plan, s, parallel);
  return Status::ok;
}

}  // namespace

Table<BlockTailKernel> block_tail_table() {
  static const BlockTailKernel best_first[] = {
#if defined(BIE_X86)
    {"block_tail_avx2", Isa::avx2, nullptr, run<cpu::avx2::block_tail_passes>},
#endif
    {"block_tail_reference", Isa::reference, nullptr, run<cpu::plain::block_tail_passes>},
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
