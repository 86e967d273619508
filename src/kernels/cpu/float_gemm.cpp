// The kernels of float_gemm and float_conv2d, best first, and their drivers.
#include "bie/kernels/float_gemm.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "bie/kernels/isa.h"
#include "kernels/check.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t lanes = 16, most_rows = 12, work_a_task = 1 << 17;

std::int64_t panels_of(std::int64_t n) { return (n + lanes - 1) / lanes; }

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(panels_of(n) * k * lanes) * sizeof(float);
}

void prepack(const float* w, std::int64_t n, std::int64_t k, float* packed) {
  for (std::int64_t p = 0; p < panels_of(n); ++p)
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < lanes; ++j)
        packed[(p * k + i) * lanes + j] = p * lanes + j < n ? w[(p * lanes + j) * k + i] : 0.0f;
}

template <const cpu::FloatGemmPasses& passes>
Status gemm(const GemmShape& s, const float* x, const float* packed, const float* bias, float* y,
            const Parallel& parallel) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  const std::int64_t tile_rows = passes.most;
  const std::int64_t panels = panels_of(s.n), blocks = (s.m + tile_rows - 1) / tile_rows;
  const std::int64_t work = tile_rows * lanes * std::max<std::int64_t>(1, s.k);
  // A panel meets all rows before the next one does.
  parallel_for(parallel, panels * blocks, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 float tile[most_rows][lanes];
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t p = item / blocks, row = item % blocks * tile_rows;
                   const int rows = static_cast<int>(std::min(tile_rows, s.m - row));
                   passes.tile(x + row * s.k, s.k, rows, packed + p * s.k * lanes, s.k, tile);
                   const std::int64_t count = std::min(lanes, s.n - p * lanes);
                   for (int r = 0; r < rows; ++r)
                     for (std::int64_t j = 0; j < count; ++j)
                       y[(row + r) * s.n + p * lanes + j] =
                           bias == nullptr ? tile[r][j] : tile[r][j] + bias[p * lanes + j];
                 }
               });
  return Status::ok;
}

/// The images with their borders, and where the first term of each k of a window lies.
struct Padded {
  std::int64_t height, width;
  std::int64_t* offsets = nullptr;  ///< [depth]
  float* images = nullptr;          ///< [batch, in_c, height, width], and some more that may be read

  explicit Padded(const Conv2dShape& s) : height(s.in_h + 2 * s.pad_h), width(s.in_w + 2 * s.pad_w) {}

  /// False where there is no memory.
  bool take(const Conv2dShape& s) {
    const std::int64_t depth = s.depth(), planes = s.batch * s.in_c;
    constexpr double most_bytes = 1e15;
    if (static_cast<double>(planes) * static_cast<double>(height) * static_cast<double>(width) > most_bytes)
      return false;
    const std::int64_t offset_bytes = (depth * static_cast<std::int64_t>(sizeof(std::int64_t)) + 63) / 64 * 64;
    const std::int64_t beyond = lanes + 4 * s.stride_w, floats = planes * height * width + beyond;
    auto* const memory = static_cast<char*>(
        cpu::workspace(static_cast<std::size_t>(offset_bytes + floats * static_cast<std::int64_t>(sizeof(float)))));
    if (memory == nullptr) return false;
    offsets = reinterpret_cast<std::int64_t*>(memory);
    images = reinterpret_cast<float*>(memory + offset_bytes);
    std::int64_t* at = offsets;
    for (std::int64_t c = 0; c < s.group_in(); ++c)
      for (std::int64_t i = 0; i < s.kernel_h; ++i)
        for (std::int64_t j = 0; j < s.kernel_w; ++j) *at++ = (c * height + i * s.dil_h) * width + j * s.dil_w;
    std::fill(images + floats - beyond, images + floats, 0.0f);
    return true;
  }

  void copy(const Conv2dShape& s, const float* x, std::int64_t plane) const {
    float* to = images + plane * height * width;
    const float* from = x + plane * s.in_h * s.in_w;
    to = std::fill_n(to, s.pad_h * width + s.pad_w, 0.0f);
    for (std::int64_t row = 0; row < s.in_h; ++row, from += s.in_w)
      to = std::fill_n(std::copy(from, from + s.in_w, to), row + 1 < s.in_h ? 2 * s.pad_w : s.pad_w, 0.0f);
    std::fill_n(to, s.pad_h * width, 0.0f);
  }
};

template <const cpu::FloatGemmPasses& passes>
Status conv2d(const Conv2dShape& s, const float* x, const float* w, const float* bias, float* y,
              const Parallel& parallel) {
  const Conv2dInput in{x, Dtype::f32, ImageLayout::nchw, nullptr, 1};
  const Conv2dOutput out{y, Dtype::f32, ImageLayout::nchw, 1};
  Conv2dShape shape = s;
  shape.pad_code = 0;
  const Status checked = check_conv2d(shape, in, out, Dtype::s8, INT64_MAX);
  const std::int64_t out_h = s.out_h(), out_w = s.out_w(), depth = s.depth(), tile_rows = passes.most;
  if (checked != Status::ok || s.batch * s.out_c * out_h * out_w == 0) return checked;
  Padded padded(s);
  if (!padded.take(s)) return Status::out_of_memory;
  parallel_for(parallel, s.batch * s.in_c, 1 + work_a_task / (padded.height * padded.width + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t plane = begin; plane < end; ++plane) padded.copy(s, x, plane);
               });
  const std::int64_t pieces = panels_of(out_w), items = s.batch * s.groups * out_h * pieces;
  const std::int64_t work = std::max<std::int64_t>(1, depth * s.group_out() * lanes);
  std::atomic<bool> enough{true};
  parallel_for(parallel, items, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 // Outputs whose windows are not neighbours read copies of them.
                 const std::int64_t copied = s.stride_w == 1 ? 0 : depth * lanes;
                 auto* const windows = static_cast<float*>(
                     cpu::workspace(static_cast<std::size_t>(copied + lanes) * sizeof(float), cpu::Buffer::tile));
                 if (windows == nullptr) return enough.store(false, std::memory_order_relaxed);
                 float tile[most_rows][lanes];
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t ox = item % pieces * lanes, oy = item / pieces % out_h;
                   const std::int64_t group = item / pieces / out_h % s.groups, n = item / pieces / out_h / s.groups;
                   const std::int64_t count = std::min(lanes, out_w - ox),
                                      first_plane = n * s.in_c + group * s.group_in();
                   const float* const from =
                       padded.images + (first_plane * padded.height + oy * s.stride_h) * padded.width + ox * s.stride_w;
                   for (std::int64_t i = 0; i < copied; ++i) {
                     const std::int64_t p = i % lanes;
                     windows[i] = p < count ? from[padded.offsets[i / lanes] + p * s.stride_w] : 0.0f;
                   }
                   for (std::int64_t o = 0; o < s.group_out(); o += tile_rows) {
                     const int rows = static_cast<int>(std::min(tile_rows, s.group_out() - o));
                     const std::int64_t first = group * s.group_out() + o;
                     if (copied > 0)
                       passes.tile(w + first * depth, depth, rows, windows, depth, tile);
                     else
                       passes.scattered(w + first * depth, depth, rows, from, padded.offsets, depth, tile);
                     for (int r = 0; r < rows; ++r) {
                       float* const to = y + ((n * s.out_c + first + r) * out_h + oy) * out_w + ox;
                       for (std::int64_t j = 0; j < count; ++j)
                         to[j] = bias == nullptr ? tile[r][j] : tile[r][j] + bias[first + r];
                     }
                   }
                 }
               });
  return enough.load() ? Status::ok : Status::out_of_memory;
}

std::size_t conv2d_packed_bytes(const Conv2dShape& s) {
  return static_cast<std::size_t>(s.groups) * packed_bytes(s.group_out(), s.depth());
}

void prepack_conv2d(const float* w, const Conv2dShape& s, float* packed) {
  const std::int64_t weights = s.group_out() * s.depth(), floats = panels_of(s.group_out()) * s.depth() * lanes;
  for (std::int64_t g = 0; g < s.groups; ++g) prepack(w + g * weights, s.group_out(), s.depth(), packed + g * floats);
}

/// Of the CPU; those of `least` where it has none of its own.
bool run_tail(const cpu::CodeTailPasses& least, const cpu::TailArgs& args) {
#if defined(BIE_X86)
  if (host().isas.has(Isa::avx512)) return cpu::avx512::tail(args);
#endif
  return least.tail_rows(args);
}

template <const cpu::FloatGemmPasses& passes, const cpu::CodeTailPasses& tails>
Status conv2d_tailed(const Conv2dShape& s, const float* x, const float* packed, const float* bias,
                     const Conv2dTail& tail, const Parallel& parallel) {
  const Conv2dInput in{x, Dtype::f32, ImageLayout::nchw, nullptr, 1};
  const Conv2dOutput out{nullptr, Dtype::f32, ImageLayout::nhwc, 1, &tail};
  Conv2dShape shape = s;
  shape.pad_code = 0;
  const Status checked = check_conv2d(shape, in, out, Dtype::s8, INT64_MAX);
  const std::int64_t out_h = s.out_h(), out_w = s.out_w(), depth = s.depth();
  if (checked != Status::ok || s.batch * s.out_c * out_h * out_w == 0) return checked;
  Padded padded(s);
  if (!padded.take(s)) return Status::out_of_memory;
  parallel_for(parallel, s.batch * s.in_c, 1 + work_a_task / (padded.height * padded.width + 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t plane = begin; plane < end; ++plane) padded.copy(s, x, plane);
               });
  constexpr std::int64_t most_pixels = 48, most_columns = 64;
  const std::int64_t pieces = (out_w + most_pixels - 1) / most_pixels, items = s.batch * s.groups * out_h * pieces;
  const std::int64_t work = std::max<std::int64_t>(1, depth * s.group_out() * std::min(out_w, most_pixels));
  const std::int64_t group_floats = panels_of(s.group_out()) * depth * lanes;
  std::atomic<bool> finite{true};
  parallel_for(
      parallel, items, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
      [&](std::int64_t begin, std::int64_t end) {
        alignas(64) float sums[most_pixels * most_columns];
        for (std::int64_t item = begin; item < end; ++item) {
          const std::int64_t ox = item % pieces * most_pixels, oy = item / pieces % out_h;
          const std::int64_t group = item / pieces / out_h % s.groups, n = item / pieces / out_h / s.groups;
          const std::int64_t count = std::min(most_pixels, out_w - ox), plane = n * s.in_c + group * s.group_in();
          const float* const from =
              padded.images + (plane * padded.height + oy * s.stride_h) * padded.width + ox * s.stride_w;
          for (std::int64_t o = 0; o < s.group_out(); o += most_columns) {
            const std::int64_t columns = std::min(most_columns, s.group_out() - o), channel = group * s.group_out() + o;
            for (std::int64_t c = 0; c < columns; c += lanes)
              passes.pixels(from, s.stride_w, padded.offsets, count, packed + group * group_floats + (o + c) * depth,
                            depth, sums + c, most_columns);
            const auto of_channel = [channel](const float* all) { return all == nullptr ? nullptr : all + channel; };
            const std::int64_t at = ((n * out_h + oy) * out_w + ox) * s.out_c + channel;
            const cpu::TailArgs args = {nullptr,
                                        sums,
                                        of_channel(bias),
                                        most_columns,
                                        count,
                                        static_cast<int>(columns),
                                        1,
                                        of_channel(tail.scale),
                                        of_channel(tail.shift),
                                        tail.add == nullptr ? nullptr : tail.add + at,
                                        tail.slope,
                                        tail.cuts,
                                        tail.v == nullptr ? nullptr : tail.v + at,
                                        tail.codes == nullptr ? nullptr : tail.codes + at,
                                        s.out_c,
                                        of_channel(tail.bias),
                                        tail.step,
                                        tail.lo,
                                        tail.hi,
                                        tail.signs};
            if (!run_tail(tails, args)) finite.store(false, std::memory_order_relaxed);
          }
        }
      });
  return finite.load() ? Status::ok : Status::not_finite;
}

/// A kernel of its passes.
template <const cpu::FloatGemmPasses& passes, const cpu::CodeTailPasses& tails>
constexpr FloatConv2dKernel conv2d_kernel(const char* name, Isa isa) {
  return {name, isa, nullptr, conv2d<passes>, conv2d_packed_bytes, prepack_conv2d, conv2d_tailed<passes, tails>};
}

}  // namespace

Table<FloatGemmKernel> float_gemm_table() {
  static const FloatGemmKernel best_first[] = {
#if defined(BIE_X86)
    {"float_gemm_avx512bw", Isa::avx512bw, nullptr, packed_bytes, prepack, gemm<cpu::avx512bw::float_gemm_passes>},
    {"float_gemm_avx2", Isa::avx2, nullptr, packed_bytes, prepack, gemm<cpu::avx2::float_gemm_passes>},
#endif
    {"float_gemm_reference", Isa::reference, nullptr, packed_bytes, prepack, gemm<cpu::plain::float_gemm_passes>},
  };
  return table_of(best_first);
}

Table<FloatConv2dKernel> float_conv2d_table() {
  static const FloatConv2dKernel best_first[] = {
#if defined(BIE_X86)
    conv2d_kernel<cpu::avx512bw::float_gemm_passes, cpu::avx2::code_tail_passes>("float_conv2d_avx512bw",
                                                                                 Isa::avx512bw),
    conv2d_kernel<cpu::avx2::float_gemm_passes, cpu::avx2::code_tail_passes>("float_conv2d_avx2", Isa::avx2),
#endif
    conv2d_kernel<cpu::plain::float_gemm_passes, cpu::plain::code_tail_passes>("float_conv2d_reference",
                                                                               Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
