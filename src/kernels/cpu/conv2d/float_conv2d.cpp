// The kernels of float_conv2d, best first, and their drivers.
#include <algorithm>
#include <atomic>

#include "bie/kernels/float_gemm.h"
#include "kernels/check.h"
#include "kernels/cpu/gemm/float_panels.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t lanes = 16, work_a_task = 1 << 17;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The pixels that windows read, as planes in which the windows of neighbouring outputs begin side by side: pixel
/// (y, x) of the image with its border is element (y / stride_h, x / stride_w) of part (y % stride_h, x % stride_w) of
/// its plane. Tap k of output (oy, ox) is element oy * width + ox behind offsets[k].
class Windows {
 public:
  Windows(const Conv2dShape& s, const float* x)
      : s_(s),
        x_(x),
        parts_h_(std::min(s.stride_h, (s.kernel_h - 1) * s.dil_h + 1)),
        parts_w_(std::min(s.stride_w, (s.kernel_w - 1) * s.dil_w + 1)),
        height_(s.out_h() + (s.kernel_h - 1) * s.dil_h / s.stride_h),
        width_(s.out_w() + (s.kernel_w - 1) * s.dil_w / s.stride_w) {}

  /// Planes are those of x where nothing surrounds or skips its pixels, and `may_read_x`. False without memory.
  bool prepare(bool may_read_x, const Parallel& parallel) {
    const std::int64_t depth = s_.depth(), planes = s_.batch * s_.in_c;
    constexpr double most_floats = 1e15;
    if (static_cast<double>(planes) * static_cast<double>(plane_floats()) > most_floats) return false;
    may_read_x = may_read_x && s_.pad_h + s_.pad_w == 0 && s_.stride_h * s_.stride_w == 1;
    const std::int64_t offset_bytes = ceil_div(depth * static_cast<std::int64_t>(sizeof(std::int64_t)), 64) * 64;
    const std::int64_t floats = may_read_x ? 0 : planes * plane_floats() + beyond;
    auto* const memory = static_cast<char*>(
        cpu::workspace(static_cast<std::size_t>(offset_bytes + floats * static_cast<std::int64_t>(sizeof(float)))));
    if (memory == nullptr) return false;
    auto* const offsets = reinterpret_cast<std::int64_t*>(memory);
    std::int64_t* to = offsets;
    for (std::int64_t c = 0; c < s_.group_in(); ++c)
      for (std::int64_t i = 0; i < s_.kernel_h; ++i)
        for (std::int64_t j = 0; j < s_.kernel_w; ++j) *to++ = c * plane_floats() + offset(i * s_.dil_h, j * s_.dil_w);
    offsets_ = offsets;
    planes_ = x_;
    if (may_read_x) return true;
    auto* const copies = reinterpret_cast<float*>(memory + offset_bytes);
    std::fill(copies + floats - beyond, copies + floats, 0.0f);
    parallel_for(parallel, planes, 1 + work_a_task / (plane_floats() + 1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane)
        copy(x_ + plane * s_.in_h * s_.in_w, copies + plane * plane_floats());
    });
    planes_ = copies;
    return true;
  }

  std::int64_t width() const { return width_; }
  const std::int64_t* offsets() const { return offsets_; }
  const float* plane(std::int64_t number) const { return planes_ + number * plane_floats(); }

 private:
  static constexpr std::int64_t beyond = 2 * lanes;  ///< floats behind the last plane that tiles may read

  std::int64_t plane_floats() const { return parts_h_ * parts_w_ * height_ * width_; }

  std::int64_t offset(std::int64_t y, std::int64_t x) const {
    const std::int64_t part = y % s_.stride_h * parts_w_ + x % s_.stride_w;
    return (part * height_ + y / s_.stride_h) * width_ + x / s_.stride_w;
  }

  void copy(const float* from, float* to) const {
    for (std::int64_t part = 0; part < parts_h_ * parts_w_; ++part) {
      const std::int64_t first_y = part / parts_w_ - s_.pad_h, first_x = part % parts_w_ - s_.pad_w;
      const std::int64_t begin =
          std::clamp<std::int64_t>(first_x >= 0 ? 0 : ceil_div(-first_x, s_.stride_w), 0, width_);
      const std::int64_t end =
          std::clamp<std::int64_t>(first_x >= s_.in_w ? 0 : ceil_div(s_.in_w - first_x, s_.stride_w), begin, width_);
      for (std::int64_t row = 0; row < height_; ++row, to += width_) {
        const std::int64_t y = first_y + row * s_.stride_h;
        if (y < 0 || y >= s_.in_h) {
          std::fill(to, to + width_, 0.0f);
          continue;
        }
        std::fill(to, to + begin, 0.0f);
        const float* const line = from + y * s_.in_w + first_x + begin * s_.stride_w;
        if (s_.stride_w == 1)
          std::copy(line, line + (end - begin), to + begin);
        else
          for (std::int64_t i = 0; i < end - begin; ++i) to[begin + i] = line[i * s_.stride_w];
        std::fill(to + end, to + width_, 0.0f);
      }
    }
  }

  const Conv2dShape& s_;
  const float* x_;
  std::int64_t parts_h_, parts_w_, height_, width_;  ///< per plane: its parts, and the sizes of each
  const std::int64_t* offsets_ = nullptr;            ///< [depth]
  const float* planes_ = nullptr;
};

/// The outputs of a plane in blocks of neighbouring elements of `Windows`. Blocks go on from a row to the next one,
/// whose outputs follow behind the columns that only windows have, or begin with each row: whichever are fewer. A block
/// ends with the last window, as long as all of them fill one.
class Blocks {
 public:
  Blocks(std::int64_t out_h, std::int64_t out_w, std::int64_t width)
      : out_w_(out_w),
        width_(width),
        elements_((out_h - 1) * width + out_w),
        rows_(out_h * ceil_div(out_w, lanes) < ceil_div(elements_, lanes) ? out_h : 1) {
    each_ = ceil_div(rows_ == 1 ? elements_ : out_w, lanes);
  }
  std::int64_t count() const { return rows_ * each_; }
  bool ends_with_the_last() const { return elements_ >= lanes; }

  void write(cpu::FloatBlock* to) const {
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t i = 0; i < each_; ++i) {
        const std::int64_t begin = row * width_ + i * lanes;
        const std::int64_t end = std::min(begin + lanes, rows_ == 1 ? elements_ : row * width_ + out_w_);
        const std::int64_t from = ends_with_the_last() ? std::min(begin, elements_ - lanes) : begin;
        cpu::FloatBlock block{from, begin / width_ * out_w_ + std::min(begin % width_, out_w_), 0};
        for (std::int64_t at = begin; at < end; ++at)
          if (at % width_ < out_w_) block.lanes |= 1u << (at - from);
        *to++ = block;
      }
  }

 private:
  std::int64_t out_w_, width_, elements_, rows_, each_;
};

/// The refusals that both drivers share; `to` is the layout of the output.
Status check(const Conv2dShape& s, const float* x, float* y, ImageLayout to, const Conv2dTail* tail) {
  const Conv2dInput in{x, Dtype::f32, ImageLayout::nchw, nullptr, 1};
  const Conv2dOutput out{y, Dtype::f32, to, 1, tail};
  Conv2dShape shape = s;
  shape.pad_code = 0;
  return check_conv2d(shape, in, out, Dtype::s8, INT64_MAX);
}

template <const cpu::FloatConvPasses& passes>
Status conv2d(const Conv2dShape& s, const float* x, const float* w, const float* bias, float* y,
              const Parallel& parallel) {
  const Status checked = check(s, x, y, ImageLayout::nchw, nullptr);
  const std::int64_t out_h = s.out_h(), out_w = s.out_w(), depth = s.depth(), outputs = s.group_out();
  if (checked != Status::ok || s.batch * s.out_c * out_h * out_w == 0) return checked;
  Windows windows(s, x);
  const Blocks plan(out_h, out_w, windows.width());
  const std::int64_t count = plan.count();
  auto* const blocks = static_cast<cpu::FloatBlock*>(
      cpu::workspace(static_cast<std::size_t>(count) * sizeof(cpu::FloatBlock), cpu::Buffer::tile));
  if (blocks == nullptr || !windows.prepare(plan.ends_with_the_last(), parallel)) return Status::out_of_memory;
  plan.write(blocks);
  // A tile of outputs, whose weights stay in L1, is multiplied with some blocks before the next tile.
  const std::int64_t tiles = ceil_div(outputs, passes.most), rows = ceil_div(outputs, tiles);
  const std::int64_t work = std::max<std::int64_t>(1, rows * depth * lanes);
  const std::int64_t some =
      std::clamp<std::int64_t>(work_a_task / parallel.fineness / work, std::min<std::int64_t>(count, 8), count);
  const std::int64_t pieces = ceil_div(count, some);
  parallel_for(parallel, s.batch * s.groups * pieces * tiles,
               std::max<std::int64_t>(1, work_a_task / parallel.fineness / (work * some)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t row = item % tiles * rows, piece = item / tiles % pieces;
                   const std::int64_t groups = item / tiles / pieces, group = groups % s.groups;
                   const std::int64_t first = group * outputs + row, n = groups / s.groups;
                   const int here = static_cast<int>(std::min(rows, outputs - row));
                   if (here <= 0) continue;
                   passes.windows(w + first * depth, here, bias == nullptr ? nullptr : bias + first,
                                  windows.plane(n * s.in_c + group * s.group_in()), windows.offsets(), depth,
                                  blocks + piece * some, std::min(some, count - piece * some),
                                  y + (n * s.out_c + first) * out_h * out_w, out_h * out_w);
                 }
               });
  return Status::ok;
}

std::int64_t panel_floats(const Conv2dShape& s) { return ceil_div(s.group_out(), lanes) * s.depth() * lanes; }

std::size_t packed_bytes(const Conv2dShape& s) {
  return static_cast<std::size_t>(s.groups * panel_floats(s)) * sizeof(float);
}

void prepack(const float* w, const Conv2dShape& s, float* packed) {
  for (std::int64_t g = 0; g < s.groups; ++g)
    cpu::pack_float_panels(w + g * s.group_out() * s.depth(), s.group_out(), s.depth(), packed + g * panel_floats(s),
                           serial());
}

/// The tail kernel of the CPU; that of `least` where it has none of its own.
bool run_tail(const cpu::CodeTailPasses& least, const cpu::TailArgs& args) {
#if defined(BIE_X86)
  if (host().isas.has(Isa::avx512)) return cpu::avx512::tail(args);
#endif
  return least.tail_rows(args);
}

template <const cpu::FloatConvPasses& passes, const cpu::CodeTailPasses& tails>
Status conv2d_tailed(const Conv2dShape& s, const float* x, const float* packed, const float* bias,
                     const Conv2dTail& tail, const Parallel& parallel) {
  const Status checked = check(s, x, nullptr, ImageLayout::nhwc, &tail);
  const std::int64_t out_h = s.out_h(), out_w = s.out_w(), depth = s.depth();
  if (checked != Status::ok || s.batch * s.out_c * out_h * out_w == 0) return checked;
  Windows windows(s, x);
  if (!windows.prepare(/*may_read_x=*/false, parallel)) return Status::out_of_memory;
  constexpr std::int64_t most_pixels = 48, most_columns = 64;
  const std::int64_t pieces = ceil_div(out_w, most_pixels), items = s.batch * s.groups * out_h * pieces;
  const std::int64_t work = std::max<std::int64_t>(1, depth * s.group_out() * std::min(out_w, most_pixels));
  std::atomic<bool> finite{true};
  parallel_for(
      parallel, items, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
      [&](std::int64_t begin, std::int64_t end) {
        alignas(64) float sums[most_pixels * most_columns];
        for (std::int64_t item = begin; item < end; ++item) {
          const std::int64_t ox = item % pieces * most_pixels, oy = item / pieces % out_h;
          const std::int64_t group = item / pieces / out_h % s.groups, n = item / pieces / out_h / s.groups;
          const std::int64_t count = std::min(most_pixels, out_w - ox);
          const float* const from = windows.plane(n * s.in_c + group * s.group_in()) + oy * windows.width() + ox;
          for (std::int64_t o = 0; o < s.group_out(); o += most_columns) {
            const std::int64_t columns = std::min(most_columns, s.group_out() - o), channel = group * s.group_out() + o;
            for (std::int64_t c = 0; c < columns; c += lanes)
              passes.pixels(from, windows.offsets(), count, packed + group * panel_floats(s) + (o + c) * depth, depth,
                            sums + c, most_columns);
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

template <const cpu::FloatConvPasses& passes, const cpu::CodeTailPasses& tails>
constexpr FloatConv2dKernel kernel_of(const char* name, Isa isa) {
  return {name, isa, nullptr, conv2d<passes>, packed_bytes, prepack, conv2d_tailed<passes, tails>};
}

}  // namespace

Table<FloatConv2dKernel> float_conv2d_table() {
  static const FloatConv2dKernel best_first[] = {
#if defined(BIE_X86)
    kernel_of<cpu::avx512bw::float_conv_passes, cpu::avx2::code_tail_passes>("float_conv2d_avx512bw", Isa::avx512bw),
    kernel_of<cpu::avx2::float_conv_passes, cpu::avx2::code_tail_passes>("float_conv2d_avx2", Isa::avx2),
#endif
    kernel_of<cpu::plain::float_conv_passes, cpu::plain::code_tail_passes>("float_conv2d_reference", Isa::reference),
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
