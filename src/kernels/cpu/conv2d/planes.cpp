#include "bie/kernels/planes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "bie/kernels/isa.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/arithmetic/sigmoid.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t elements_a_task = 1 << 15;

/// Code-tail passes of the best instruction set of this CPU.
const cpu::CodeTailPasses& best_passes() {
#if defined(BIE_X86)
  if (host().isas.has(Isa::avx2)) return cpu::avx2::code_tail_passes;
#endif
  return cpu::plain::code_tail_passes;
}

const cpu::PlanePasses& plane_passes() {
#if defined(BIE_X86)
  if (host().isas.has(Isa::avx2)) return cpu::avx2::plane_passes;
#endif
  return cpu::plain::plane_passes;
}

/// pass(first, count) for all of `count` elements.
template <class Pass>
void in_parts(std::int64_t count, const Parallel& parallel, const Pass& pass) {
  parallel_for(parallel, count, elements_a_task,
               [&](std::int64_t begin, std::int64_t end) { pass(begin, end - begin); });
}

/// The part of [0, size) that a window of `kernel` pixels from `from` on covers.
struct Span {
  std::int64_t begin, end;
  Span(std::int64_t from, std::int64_t kernel, std::int64_t size)
      : begin(std::max<std::int64_t>(from, 0)), end(std::min(from + kernel, size)) {}
};

/// y = f(plane, rows, columns) of every window.
template <class F>
void each_window(const PoolShape& s, const float* x, float* y, const Parallel& parallel, const F& f) {
  const std::int64_t out_h = s.out_height(), out_w = s.out_width();
  parallel_for(parallel, s.planes, 1 + elements_a_task / (s.height * s.width + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t p = begin; p < end; ++p) {
                   const float* const plane = x + p * s.height * s.width;
                   float* to = y + p * out_h * out_w;
                   for (std::int64_t i = 0; i < out_h; ++i) {
                     const Span rows(i * s.stride_h - s.top, s.kernel_h, s.height);
                     for (std::int64_t j = 0; j < out_w; ++j)
                       *to++ = f(plane, rows, Span(j * s.stride_w - s.left, s.kernel_w, s.width));
                   }
                 }
               });
}

}  // namespace

void plane_means(const float* x, std::int64_t planes, std::int64_t count, float* y, const Parallel& parallel) {
  constexpr std::int64_t sums = 16;
  const float by = 1 / static_cast<float>(count);
  parallel_for(parallel, planes, 1 + elements_a_task / (count + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const float* const plane = x + p * count;
      float sum[sums] = {};
      std::int64_t i = 0;
      for (; i + sums <= count; i += sums)
        for (std::int64_t j = 0; j < sums; ++j) sum[j] += plane[i + j];
      for (std::int64_t j = 0; i + j < count; ++j) sum[j] += plane[i + j];
      for (std::int64_t half = sums / 2; half > 0; half /= 2)
        for (std::int64_t j = 0; j < half; ++j) sum[j] += sum[j + half];
      y[p] = sum[0] * by;
    }
  });
}

void channel_means(const float* x, std::int64_t images, std::int64_t count, std::int64_t channels, float* y,
                   const Parallel& parallel) {
  constexpr std::int64_t sums = 16, most = 16;  // channels at a time
  const float by = 1 / static_cast<float>(count);
  parallel_for(parallel, images, 1 + elements_a_task / (count * channels + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t n = begin; n < end; ++n)
                   for (std::int64_t first = 0; first < channels; first += most) {
                     const std::int64_t here = std::min(most, channels - first);
                     float sum[sums][most] = {};
                     for (std::int64_t i = 0; i < count; ++i) {
                       const float* const from = x + (n * count + i) * channels + first;
                       float* const to = sum[i % sums];
                       for (std::int64_t c = 0; c < here; ++c) to[c] += from[c];
                     }
                     for (std::int64_t half = sums / 2; half > 0; half /= 2)
                       for (std::int64_t j = 0; j < half; ++j)
                         for (std::int64_t c = 0; c < most; ++c) sum[j][c] += sum[j + half][c];
                     for (std::int64_t c = 0; c < here; ++c) y[n * channels + first + c] = sum[0][c] * by;
                   }
               });
}

void strided_pixels(const StridedPlanes& s, const float* x, float* y, const Parallel& parallel) {
  const std::int64_t out_h = s.out_height(), out_w = s.out_width(), copied = std::min(s.channels, s.out_channels);
  parallel_for(parallel, s.images * out_h, 1 + elements_a_task / (out_w * s.out_channels + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t line = begin; line < end; ++line) {
                   const std::int64_t row = line / out_h * s.height + line % out_h * s.stride;
                   float* to = y + line * out_w * s.out_channels;
                   for (std::int64_t column = 0; column < out_w; ++column, to += s.out_channels) {
                     const float* const from = x + (row * s.width + column * s.stride) * s.channels;
                     std::fill(std::copy(from, from + copied, to), to + s.out_channels, 0.0f);
                   }
                 }
               });
}

void pool_codes(const CodePoolShape& s, const std::int8_t* x, std::int8_t* y, const Parallel& parallel) {
  const auto& passes = best_passes();
  const std::int64_t out_h = s.height / s.pool, out_w = s.width / s.pool, row = s.width * s.channels;
  parallel_for(parallel, s.images * out_h, 1 + elements_a_task / (s.pool * row + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t line = begin; line < end; ++line) {
                   const std::int8_t* const rows = x + (line / out_h * s.height + line % out_h * s.pool) * row;
                   for (std::int64_t column = 0; column < out_w; ++column) {
                     std::int8_t* const to = y + (line * out_w + column) * s.channels;
                     for (std::int64_t i = 0; i < s.pool; ++i)
                       for (std::int64_t j = 0; j < s.pool; ++j) {
                         const std::int8_t* const from = rows + i * row + (column * s.pool + j) * s.channels;
                         if (i == 0 && j == 0)
                           std::copy(from, from + s.channels, to);
                         else
                           passes.keep_larger(from, s.channels, to);
                       }
                   }
                 }
               });
}

void strided_planes(const StridedPlanes& s, const float* x, float* y, const Parallel& parallel) {
  const std::int64_t out_h = s.out_height(), out_w = s.out_width();
  parallel_for(parallel, s.images * s.out_channels, 1 + elements_a_task / (out_h * out_w + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t image = i / s.out_channels, c = i % s.out_channels;
                   float* to = y + i * out_h * out_w;
                   if (c >= s.channels) {
                     std::fill(to, to + out_h * out_w, 0.0f);
                     continue;
                   }
                   const float* const from = x + (image * s.channels + c) * s.height * s.width;
                   for (std::int64_t row = 0; row < out_h; ++row)
                     for (std::int64_t column = 0; column < out_w; ++column)
                       *to++ = from[row * s.stride * s.width + column * s.stride];
                 }
               });
}

void softmax_rows(const float* x, std::int64_t rows, std::int64_t count, float* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += count, y += count) {
    const float largest = *std::max_element(x, x + count);
    float sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += y[i] = exp_below_zero(x[i] - largest);
    for (std::int64_t i = 0; i < count; ++i) y[i] /= sum;
  }
}

void max_pool_pixels(const PoolShape& s, std::int64_t images, std::int64_t channels, const float* x, float* y,
                     const Parallel& parallel) {
  constexpr std::int64_t strip = 4096;  // floats of columns whose largest pixels are found at once
  const auto& passes = best_passes();
  const std::int64_t out_h = s.out_height(), out_w = s.out_width(), row = s.width * channels;
  // Windows whose columns lie in a strip; of one window at least, then of some of its channels.
  const std::int64_t most = std::min(channels, std::max<std::int64_t>(1, strip / s.kernel_w));
  const std::int64_t windows =
      most < channels ? 1 : std::max<std::int64_t>(1, (strip / channels - s.kernel_w) / s.stride_w + 1);
  parallel_for(parallel, images * out_h, 1 + elements_a_task / (row * s.kernel_h + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 float largest[strip];
                 for (std::int64_t line = begin; line < end; ++line) {
                   const Span rows(line % out_h * s.stride_h - s.top, s.kernel_h, s.height);
                   const float* const image = x + line / out_h * s.height * row;
                   for (std::int64_t first = 0; first < out_w; first += windows) {
                     const std::int64_t last = std::min(out_w, first + windows);
                     const std::int64_t from = Span(first * s.stride_w - s.left, s.kernel_w, s.width).begin;
                     const std::int64_t to = Span((last - 1) * s.stride_w - s.left, s.kernel_w, s.width).end;
                     for (std::int64_t c = 0; c < channels; c += most) {
                       const std::int64_t here = std::min(most, channels - c), pixels = to - from;
                       // If all channels are taken at once, the windows' columns are contiguous and one run covers
                       // them; else a run is one pixel.
                       const std::int64_t runs = here == channels ? 1 : pixels,
                                          each = here == channels ? pixels * here : here;
                       for (std::int64_t i = rows.begin; i < rows.end; ++i)
                         for (std::int64_t run = 0; run < runs; ++run) {
                           const float* const pixel = image + i * row + (from + run) * channels + c;
                           if (i == rows.begin)
                             std::copy(pixel, pixel + each, largest + run * here);
                           else
                             passes.keep_above(pixel, each, largest + run * here);
                         }
                       for (std::int64_t ox = first; ox < last; ++ox) {
                         const Span columns(ox * s.stride_w - s.left, s.kernel_w, s.width);
                         float* const out = y + (line * out_w + ox) * channels + c;
                         const float* const column = largest + (columns.begin - from) * here;
                         std::copy(column, column + here, out);
                         for (std::int64_t k = 1; k < columns.end - columns.begin; ++k)
                           passes.keep_above(column + k * here, here, out);
                       }
                     }
                   }
                 }
               });
}

void max_pool(const PoolShape& s, const float* x, float* y, const Parallel& parallel) {
  const std::int64_t out_h = s.out_height(), out_w = s.out_width();
  constexpr std::int64_t strip = 512;  // columns whose largest pixels are found at once
  parallel_for(parallel, s.planes * out_h, 1 + elements_a_task / (s.width * s.kernel_h + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 float larger[strip];
                 for (std::int64_t line = begin; line < end; ++line) {
                   const Span rows(line % out_h * s.stride_h - s.top, s.kernel_h, s.height);
                   const float* const plane = x + line / out_h * s.height * s.width;
                   float* const to = y + line * out_w;
                   for (std::int64_t first = 0; first < s.width; first += strip) {
                     const std::int64_t count = std::min(strip, s.width - first);
                     std::copy_n(plane + rows.begin * s.width + first, count, larger);
                     for (std::int64_t i = rows.begin + 1; i < rows.end; ++i) {
                       const float* const row = plane + i * s.width + first;
                       for (std::int64_t j = 0; j < count; ++j) larger[j] = row[j] > larger[j] ? row[j] : larger[j];
                     }
                     // Per window: the columns inside this strip. The maximum over earlier strips is in `to` already.
                     const std::int64_t window = std::max<std::int64_t>(0, (first + s.left - s.kernel_w) / s.stride_w);
                     for (std::int64_t j = window; j < out_w && j * s.stride_w - s.left < first + count; ++j) {
                       const Span columns(j * s.stride_w - s.left, s.kernel_w, s.width);
                       std::int64_t column = std::max(columns.begin, first);
                       const std::int64_t last = std::min(columns.end, first + count);
                       if (column >= last) continue;
                       float largest = column == columns.begin ? larger[column - first] : to[j];
                       for (; column < last; ++column)
                         largest = larger[column - first] > largest ? larger[column - first] : largest;
                       to[j] = largest;
                     }
                   }
                 }
               });
}

void average_pool(const PoolShape& s, bool counts_border, const float* x, float* y, const Parallel& parallel) {
  each_window(s, x, y, parallel, [&](const float* plane, const Span& rows, const Span& columns) {
    float sum = 0;
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
      for (std::int64_t j = columns.begin; j < columns.end; ++j) sum += plane[i * s.width + j];
    const std::int64_t inside = (rows.end - rows.begin) * (columns.end - columns.begin);
    return sum / static_cast<float>(counts_border ? s.kernel_h * s.kernel_w : inside);
  });
}

void border_planes(const BorderShape& s, float value, const float* x, float* y, const Parallel& parallel) {
  const std::int64_t out_w = s.left + s.width + s.right, out = (s.top + s.height + s.bottom) * out_w;
  parallel_for(parallel, s.planes, 1 + elements_a_task / (out + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      float* const to = y + p * out;
      std::fill(to, to + out, value);
      for (std::int64_t row = 0; row < s.height; ++row)
        std::copy_n(x + (p * s.height + row) * s.width, s.width, to + (s.top + row) * out_w + s.left);
    }
  });
}

void transpose_planes(std::int64_t images, const std::int64_t* sizes, const std::int64_t* order, const float* x,
                      float* y, const Parallel& parallel) {
  const std::int64_t steps[3] = {sizes[1] * sizes[2], sizes[2], 1}, all = sizes[0] * steps[0];
  const std::int64_t outer = sizes[order[0]], middle = sizes[order[1]], inner = sizes[order[2]];
  parallel_for(parallel, images * outer, 1 + elements_a_task / (middle * inner + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t o = begin; o < end; ++o) {
                   const float* const from = x + o / outer * all + o % outer * steps[order[0]];
                   float* to = y + o * middle * inner;
                   for (std::int64_t i = 0; i < middle; ++i)
                     for (std::int64_t j = 0; j < inner; ++j) *to++ = from[i * steps[order[1]] + j * steps[order[2]]];
                 }
               });
}

void clip(const float* x, std::int64_t count, float lo, float hi, float* y, const Parallel& parallel) {
  const auto pass = plane_passes().clip;
  in_parts(count, parallel, [&](std::int64_t first, std::int64_t some) { pass(x + first, some, lo, hi, y + first); });
}

bool all_finite(const float* x, std::int64_t count) {
  constexpr std::uint32_t exponent = 0x7f800000;
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    bad |= (bits_from_float(x[i]) & exponent) == exponent ? 1U : 0U;
  }
  return bad == 0;
}

void round_to_steps(const float* x, std::int64_t count, float step, int zero, int lo, int hi, float* y,
                    const Parallel& parallel) {
  const auto pass = plane_passes().round_to_steps;
  const auto low = static_cast<float>(lo - zero), high = static_cast<float>(hi - zero);
  in_parts(count, parallel,
           [&](std::int64_t first, std::int64_t some) { pass(x + first, some, step, low, high, y + first); });
}

void prelu_planes(const float* x, std::int64_t images, std::int64_t channels, std::int64_t count, const float* slope,
                  float* y, const Parallel& parallel) {
  const auto pass = plane_passes().bend;
  parallel_for(parallel, images * channels, 1 + elements_a_task / (count + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t p = begin; p < end; ++p)
                   pass(x + p * count, count, slope[p % channels], y + p * count);
               });
}

void choose(Comparison comparison, float limit, const float* x, const float* yes, const float* no, std::int64_t count,
            float* y, const Parallel& parallel) {
  const auto pass = plane_passes().choose;
  in_parts(count, parallel, [&](std::int64_t first, std::int64_t some) {
    pass(comparison, limit, x + first, yes + first, no + first, some, y + first);
  });
}

void multiply_planes(const float* x, const float* by, std::int64_t planes, std::int64_t count, float* y,
                     const Parallel& parallel) {
  const cpu::PlanePasses& passes = plane_passes();
  parallel_for(parallel, planes, 1 + elements_a_task / (count + 1), [&](std::int64_t begin, std::int64_t end) {
    if (count == 1) return passes.multiply(x + begin, by + begin, end - begin, y + begin);
    for (std::int64_t p = begin; p < end; ++p) passes.scale(x + p * count, count, by[p], y + p * count);
  });
}

}  // namespace bie::kernels
