// The kernels of float_gemm and float_conv2d, best first, and their drivers.
#include "bie/kernels/float_gemm.h"

#include <algorithm>
#include <atomic>
#include <cstring>

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
  parallel_for(parallel, panels * blocks, std::max<std::int64_t>(1, work_a_task / work),
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

/// The windows of 16 outputs side by side, [depth][16]: those of row `oy` from column `ox` on, `count` of them.
void copy_windows(const Conv2dShape& s, const float* x, std::int64_t oy, std::int64_t ox, std::int64_t count,
                  float* to) {
  for (std::int64_t c = 0; c < s.group_in(); ++c)
    for (std::int64_t i = 0; i < s.kernel_h; ++i) {
      const std::int64_t iy = oy * s.stride_h - s.pad_h + i * s.dil_h;
      const float* const line = x + (c * s.in_h + iy) * s.in_w;
      for (std::int64_t j = 0; j < s.kernel_w; ++j, to += lanes) {
        const std::int64_t ix = ox * s.stride_w - s.pad_w + j * s.dil_w;
        // Of the `count` columns those from `low` to `high` - 1 lie in the image.
        const bool inside = iy >= 0 && iy < s.in_h && count > 0;
        const std::int64_t low = inside ? std::clamp<std::int64_t>((s.stride_w - 1 - ix) / s.stride_w, 0, count) : 0;
        const std::int64_t high =
            inside && ix < s.in_w ? std::clamp<std::int64_t>((s.in_w - 1 - ix) / s.stride_w + 1, low, count) : low;
        for (std::int64_t p = 0; p < low; ++p) to[p] = 0;
        if (s.stride_w == 1 && high - low == lanes)
          std::memcpy(to, line + ix, lanes * sizeof(float));
        else if (s.stride_w == 1 && high > low)
          std::memcpy(to + low, line + ix + low, static_cast<std::size_t>(high - low) * sizeof(float));
        else
          for (std::int64_t p = low; p < high; ++p) to[p] = line[ix + p * s.stride_w];
        for (std::int64_t p = high; p < lanes; ++p) to[p] = 0;
      }
    }
}

template <const cpu::FloatGemmPasses& passes>
Status conv2d(const Conv2dShape& s, const float* x, const float* w, const float* bias, float* y,
              const Parallel& parallel) {
  const Conv2dInput in{x, Dtype::f32, ImageLayout::nchw, nullptr, 1};
  const Conv2dOutput out{y, Dtype::f32, ImageLayout::nchw, 1};
  Conv2dShape shape = s;
  shape.pad_code = 0;
  const Status checked = check_conv2d(shape, in, out, Dtype::s8, INT64_MAX);
  const std::int64_t out_h = s.out_h(), out_w = s.out_w(), depth = s.depth();
  if (checked != Status::ok || s.batch * s.out_c * out_h * out_w == 0) return checked;
  const std::int64_t tile_rows = passes.most;
  const std::int64_t pieces = panels_of(out_w), items = s.batch * s.groups * out_h * pieces;
  const std::int64_t work = std::max<std::int64_t>(1, depth * s.group_out() * lanes);
  std::atomic<bool> enough{true};
  parallel_for(
      parallel, items, std::max<std::int64_t>(1, work_a_task / work), [&](std::int64_t begin, std::int64_t end) {
        auto* const windows = static_cast<float*>(
            cpu::workspace(static_cast<std::size_t>(std::max<std::int64_t>(1, depth) * lanes) * sizeof(float)));
        if (windows == nullptr) return enough.store(false, std::memory_order_relaxed);
        float tile[most_rows][lanes];
        for (std::int64_t item = begin; item < end; ++item) {
          const std::int64_t ox = item % pieces * lanes, oy = item / pieces % out_h;
          const std::int64_t group = item / pieces / out_h % s.groups, n = item / pieces / out_h / s.groups;
          const std::int64_t count = std::min(lanes, out_w - ox);
          copy_windows(s, x + (n * s.in_c + group * s.group_in()) * s.in_h * s.in_w, oy, ox, count, windows);
          for (std::int64_t o = 0; o < s.group_out(); o += tile_rows) {
            const int rows = static_cast<int>(std::min(tile_rows, s.group_out() - o));
            const std::int64_t first = group * s.group_out() + o;
            passes.tile(w + first * depth, depth, rows, windows, depth, tile);
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
    {"float_conv2d_avx512bw", Isa::avx512bw, nullptr, conv2d<cpu::avx512bw::float_gemm_passes>},
    {"float_conv2d_avx2", Isa::avx2, nullptr, conv2d<cpu::avx2::float_gemm_passes>},
#endif
    {"float_conv2d_reference", Isa::reference, nullptr, conv2d<cpu::plain::float_gemm_passes>},
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
