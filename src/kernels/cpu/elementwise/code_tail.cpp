// The kernels of code_tail, best first, and their driver.
#include "kernels/cpu/elementwise/code_tail.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/panels.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t elements_a_task = 1 << 14, chunk = 512;

std::int64_t grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, elements_a_task / std::max<std::int64_t>(1, elements));
}

/// Numbers of one channel.
struct Channel {
  float scale, shift, bias;
};

Channel channel(const CodeTailCall& call, std::int64_t c) {
  return {call.scale == nullptr ? 1.0f : call.scale[c], call.shift == nullptr ? -0.0f : call.shift[c],
          call.bias == nullptr ? 0.0f : call.bias[c]};
}

/// Both sets of passes that a kernel has.
struct Passes {
  const cpu::BlockTailPasses& tail;
  const cpu::CodeTailPasses& codes;
};

/// Writes v to the result from element `at` on; false if a code is not a number.
bool put(const Passes& passes, const CodeTailCall& call, const float* v, const Channel& c, const float* biases,
         std::int64_t count, std::int64_t at) {
  std::int8_t* const y = static_cast<std::int8_t*>(call.y) + at;
  if (call.signs) return passes.codes.signs(v, c.bias, biases, count, y);
  return passes.codes.codes(v, c.bias, biases, call.step, static_cast<float>(call.lo), static_cast<float>(call.hi),
                            count, y);
}

const float* from(const float* array, std::int64_t at) { return array == nullptr ? nullptr : array + at; }

/// Images of one pixel, whose neighbours are channels.
bool rows(const Passes& passes, const CodeTailShape& s, const CodeTailCall& call, std::int64_t begin,
          std::int64_t end) {
  const cpu::Bend act{call.slope, call.cuts};
  float buffer[chunk], ones[chunk], nothing[chunk];
  std::fill(ones, ones + chunk, 1.0f);
  std::fill(nothing, nothing + chunk, -0.0f);
  bool finite = true;
  for (std::int64_t r = begin; r < end; ++r)
    for (std::int64_t c = 0; c < s.channels; c += chunk) {
      const std::int64_t count = std::min(chunk, s.channels - c), at = r * s.channels + c;
      float* const v = call.dtype == Dtype::f32 ? static_cast<float*>(call.y) + at : buffer;
      passes.tail.row(call.x + at, call.scale == nullptr ? ones : call.scale + c,
                      call.shift == nullptr ? nothing : call.shift + c, from(call.add, at), act, count, v);
      if (call.dtype == Dtype::s8) finite = put(passes, call, v, {1, 0, 0}, from(call.bias, c), count, at) && finite;
    }
  return finite;
}

/// The largest of each square of pixels whose channels lie last: of a column first, then of neighbours. Lines of the
/// result from `begin` on.
bool pooled_pixels(const Passes& passes, const CodeTailShape& s, const CodeTailCall& call, std::int64_t begin,
                   std::int64_t end) {
  const cpu::Bend act{call.slope, call.cuts};
  float column[chunk], value[chunk], largest[chunk], ones[chunk], nothing[chunk];
  std::fill(ones, ones + chunk, 1.0f);
  std::fill(nothing, nothing + chunk, -0.0f);
  const std::int64_t out_h = s.height / s.pool, out_w = s.width / s.pool;
  const bool bare = call.scale == nullptr && call.shift == nullptr && call.add == nullptr && !call.cuts &&
                    call.slope == 1;  // nothing before the pool
  // As many pixels as fit, unless a bias tells their channels apart.
  const std::int64_t together =
      bare && call.bias == nullptr ? std::max<std::int64_t>(1, chunk / (s.channels * s.pool)) : 1;
  bool finite = true;
  for (std::int64_t line = begin; line < end; ++line)
    for (std::int64_t first = 0; first < out_w; first += together)
      for (std::int64_t c = 0; c < s.channels; c += chunk) {
        const std::int64_t pixels = std::min(together, out_w - first), count = std::min(chunk, s.channels - c);
        const std::int64_t row = line / out_h * s.height + line % out_h * s.pool;
        const std::int64_t to = (line * out_w + first) * s.channels + c;
        const std::int64_t at = (row * s.width + first * s.pool) * s.channels + c, below = s.width * s.channels;
        float* const v = call.dtype == Dtype::f32 ? static_cast<float*>(call.y) + to : largest;
        if (bare && count == s.channels && pixels * s.pool * count <= chunk) {
          const std::int64_t all = pixels * s.pool * count;
          std::copy(call.x + at, call.x + at + all, column);
          for (std::int64_t i = 1; i < s.pool; ++i) passes.tail.keep_larger(call.x + at + i * below, all, column);
          for (std::int64_t p = 0; p < pixels; ++p) {
            const float* const from_column = column + p * s.pool * count;
            std::copy(from_column, from_column + count, v + p * count);
            for (std::int64_t j = 1; j < s.pool; ++j)
              passes.tail.keep_larger(from_column + j * count, count, v + p * count);
          }
        } else {
          for (std::int64_t j = 0; j < s.pool; ++j) {
            float* const of_column = j == 0 ? v : column;
            for (std::int64_t i = 0; i < s.pool; ++i) {
              const std::int64_t here = at + i * below + j * s.channels;
              passes.tail.row(call.x + here, call.scale == nullptr ? ones : call.scale + c,
                              call.shift == nullptr ? nothing : call.shift + c, from(call.add, here), act, count,
                              i == 0 ? of_column : value);
              if (i > 0) passes.tail.keep_larger(value, count, of_column);
            }
            if (j > 0) passes.tail.keep_larger(column, count, v);
          }
        }
        if (call.dtype == Dtype::s8)
          finite = put(passes, call, v, {1, 0, 0}, from(call.bias, c), pixels * count, to) && finite;
      }
  return finite;
}

/// Rows of a pool's result that are made at once, so that the passes are long and what lies between them is in the
/// first-level cache.
std::int64_t rows_at_once(const CodeTailShape& s) {
  constexpr std::int64_t elements = 2048;
  return std::clamp<std::int64_t>(elements / std::max<std::int64_t>(1, s.pool * s.width), 1,
                                  std::max<std::int64_t>(1, s.height / s.pool));
}

/// A plane. `lines` is where a pool is taken: rows_at_once() rows of the result and the rows they are made of.
bool plane(const Passes& passes, const CodeTailShape& s, const CodeTailCall& call, std::int64_t i, float* lines) {
  const cpu::Bend act{call.slope, call.cuts};
  const Channel c = channel(call, i % s.channels);
  const std::int64_t size = s.height * s.width, out_h = s.height / s.pool, out_w = s.width / s.pool;
  bool finite = true;
  if (s.pool == 1) {
    float buffer[chunk];
    for (std::int64_t first = 0; first < size; first += chunk) {
      const std::int64_t count = std::min(chunk, size - first), at = i * size + first;
      float* const v = call.dtype == Dtype::f32 ? static_cast<float*>(call.y) + at : buffer;
      passes.tail.channel(call.x + at, c.scale, c.shift, from(call.add, at), act, count, v);
      if (call.dtype == Dtype::s8) finite = put(passes, call, v, c, nullptr, count, at) && finite;
    }
    return finite;
  }
  const std::int64_t most = rows_at_once(s);
  float* const pooled = lines + most * s.pool * s.width;
  for (std::int64_t row = 0; row < out_h; row += most) {
    const std::int64_t count = std::min(most, out_h - row), at = i * size + row * s.pool * s.width;
    passes.tail.channel(call.x + at, c.scale, c.shift, from(call.add, at), act, count * s.pool * s.width, lines);
    const std::int64_t to = (i * out_h + row) * out_w;
    float* const v = call.dtype == Dtype::f32 ? static_cast<float*>(call.y) + to : pooled;
    passes.tail.pool_rows(lines, s.pool, s.width, count, out_w, v);
    if (call.dtype == Dtype::s8) finite = put(passes, call, v, c, nullptr, count * out_w, to) && finite;
  }
  return finite;
}

template <const cpu::BlockTailPasses& tail, const cpu::CodeTailPasses& codes>
Status run(const CodeTailShape& s, const CodeTailCall& call, const Parallel& parallel) {
  return cpu::run_code_tail(tail, codes, s, call, parallel);
}

}  // namespace

Status cpu::run_code_tail(const BlockTailPasses& tail, const CodeTailPasses& codes, const CodeTailShape& s,
                          const CodeTailCall& call, const Parallel& parallel) {
  if (s.images < 0 || s.channels < 0 || s.height < 0 || s.width < 0) return Status::bad_shape;
  if (s.pool < 1) return Status::bad_shape;
  if (call.dtype != Dtype::f32 && call.dtype != Dtype::s8) return Status::bad_dtype;
  if (call.dtype == Dtype::s8 && !call.signs && !(std::isfinite(call.step) && call.step > 0)) return Status::bad_scale;
  const Passes passes{tail, codes};
  std::atomic<bool> finite{true}, enough{true};                   // enough memory
  if (s.channels_last && s.pool == 1 && s.height * s.width != 1)  // every pixel an image
    return run_code_tail(tail, codes, {s.images * s.height * s.width, s.channels, 1, 1, 1}, call, parallel);
  const bool one_pixel = s.height == 1 && s.width == 1 && s.pool == 1, pixels = s.channels_last && !one_pixel;
  const std::int64_t count = one_pixel ? s.images : s.images * (pixels ? s.height / s.pool : s.channels);
  parallel_for(parallel, count,
               grain(one_pixel ? s.channels
                     : pixels  ? s.pool * s.width * s.channels
                               : s.height * s.width),
               [&](std::int64_t begin, std::int64_t end) {
                 bool all = true;
                 const std::int64_t lines = s.pool == 1 ? 0 : rows_at_once(s) * (s.pool * s.width + s.width / s.pool);
                 auto* const memory = static_cast<float*>(
                     cpu::workspace(static_cast<std::size_t>(lines) * sizeof(float), cpu::Buffer::tile));
                 if (memory == nullptr && lines > 0) return enough.store(false, std::memory_order_relaxed);
                 if (one_pixel)
                   all = rows(passes, s, call, begin, end);
                 else if (pixels)
                   all = pooled_pixels(passes, s, call, begin, end);
                 else
                   for (std::int64_t i = begin; i < end; ++i) all = plane(passes, s, call, i, memory) && all;
                 if (!all) finite.store(false, std::memory_order_relaxed);
               });
  if (!enough.load()) return Status::out_of_memory;
  return finite.load() ? Status::ok : Status::not_finite;
}

Table<CodeTailKernel> code_tail_table() {
  static const CodeTailKernel best_first[] = {
#if defined(BIE_X86)
    {"code_tail_avx2", Isa::avx2, nullptr, run<cpu::avx2::block_tail_passes, cpu::avx2::code_tail_passes>},
#endif
    {"code_tail_reference", Isa::reference, nullptr, run<cpu::plain::block_tail_passes, cpu::plain::code_tail_passes>},
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
