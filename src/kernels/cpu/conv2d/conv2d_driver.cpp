#include "kernels/cpu/conv2d/conv2d_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/passes.h"

namespace bie::kernels::cpu {
namespace {

constexpr int tiles_a_block = 8;     // about so many, where they load rows by stride,
constexpr int windows_a_block = 48;  // or so many windows

/// Pixels of taps that follow one another in a row of a window follow one another in memory.
bool whole_rows(const Conv2dShape& s) { return s.groups == 1 && s.dil_w == 1; }

/// The windows that tiles take, in lines. Where rows should be evenly spaced and little padding lies between lines, a
/// line goes on across it to the next one: its last windows have no output. Otherwise windows of NHWC go on from an
/// image to the next one.
struct Lines {
  bool even;                  ///< whether all windows are evenly spaced
  std::int64_t out_w, width;  ///< windows with an output, all windows
  std::int64_t segments;      ///< parts of the batch that no block crosses
  std::int64_t count;         ///< windows of a segment

  Lines(const Tile& tile, const Conv2dShape& s, const Image& image, bool nhwc)
      : even(tile.strides && s.stride_h == 1 && s.stride_w == 1 && 3 * (image.width - s.out_w()) <= s.out_w()),
        out_w(s.out_w()),
        width(even ? image.width : out_w),
        segments(nhwc && !even ? 1 : s.batch),
        count(((segments == 1 ? s.batch : 1) * s.out_h() - 1) * width + out_w) {}
  /// Outputs of the windows before `window`.
  std::int64_t outputs(std::int64_t window) const {
    return even ? window / width * out_w + std::min(window % width, out_w) : window;
  }
};

/// A tap of a pixel's window that lies outside the image.
struct Outside {
  std::int64_t pixel, tap;
};

/// Some windows of `lines`: rows[p] is where window first + p finds the codes of a group at the first tap. Where the
/// image has whole rows a tap is a row of the window.
struct Windows {
  std::vector<std::int64_t> tap_offsets;
  std::vector<const void*> rows;
  std::vector<Outside> outside;           ///< by pixel, and only where signs have to be taken back
  std::uint32_t kept[2 * tiles_a_block];  ///< bit r of a tile: its row r has an output

  /// Makes room for the windows of another convolution, reusing the memory.
  void fit(const Conv2dShape& s, const Image& image, std::int64_t pixels) {
    tap_offsets.clear();
    for (std::int64_t i = 0; i < s.kernel_h; ++i)
      for (std::int64_t j = 0; j < (whole_rows(s) ? 1 : s.kernel_w); ++j)
        tap_offsets.push_back(i * s.dil_h * image.row_bytes() + j * s.dil_w * image.pixel_bytes);
    rows.resize(static_cast<std::size_t>(pixels));
  }
  std::int64_t taps() const { return static_cast<std::int64_t>(tap_offsets.size()); }
  std::vector<Outside>::const_iterator first_outside(std::int64_t pixel) const {
    return std::lower_bound(outside.begin(), outside.end(), pixel,
                            [](const Outside& at, std::int64_t p) { return at.pixel < p; });
  }
  bool all_inside(std::int64_t from, std::int64_t to) const {
    const auto at = first_outside(from);
    return at == outside.end() || at->pixel >= to;
  }

  /// `codes` are those of the group in the segment; `given` is the convolution that `s` was made of.
  void find(const Conv2dShape& given, const Conv2dShape& s, const Image& image, const Lines& lines, const char* codes,
            std::int64_t first, std::int64_t pixels, int mr, bool take_back) {
    const std::int64_t width = lines.width, step = s.stride_w * image.pixel_bytes, out_h = s.out_h();
    const std::int64_t line_bytes = s.stride_h * image.row_bytes(), image_bytes = image.height * image.row_bytes();
    std::int64_t x = first % width, y = first / width % out_h;
    const char* line = codes + first / width / out_h * image_bytes + y * line_bytes;
    outside.clear();
    if (lines.even) std::fill(std::begin(kept), std::end(kept), 0u);
    const void** const to = rows.data();
    for (std::int64_t p = 0; p < pixels; x = 0) {
      const std::int64_t end = std::min(pixels, p + width - x);
      const char* window = line + x * step;
      for (std::int64_t i = p; i < end; ++i, window += step) to[i] = window;
      for (std::int64_t i = p; i < end && (lines.even || take_back); ++i) {
        const std::int64_t column = x + i - p;
        if (lines.even) kept[i / mr] |= std::uint32_t{column < lines.out_w} << i % mr;
        if (take_back) find_outside(given, y * given.stride_h - given.pad_h, column * given.stride_w - given.pad_w, i);
      }
      p = end;
      line += line_bytes;
      if (++y < out_h) continue;
      line += image_bytes - out_h * line_bytes;
      y = 0;
    }
  }

 private:
  void find_outside(const Conv2dShape& s, std::int64_t top, std::int64_t left, std::int64_t pixel) {
    if (top >= 0 && left >= 0 && top + s.dil_h * (s.kernel_h - 1) < s.in_h &&
        left + s.dil_w * (s.kernel_w - 1) < s.in_w)
      return;
    for (std::int64_t i = 0; i < s.kernel_h; ++i)
      for (std::int64_t j = 0; j < s.kernel_w; ++j) {
        const std::int64_t y = top + i * s.dil_h, x = left + j * s.dil_w;
        if (y < 0 || y >= s.in_h || x < 0 || x >= s.in_w) outside.push_back({pixel, i * s.kernel_w + j});
      }
  }
};

/// Removes the contribution of the signs -1 that pixels `from` to `to` - 1 read outside the image: acc[pixel][c] +=
/// sums[tap][c].
void add_tap_sums(const Windows& windows, std::int64_t from, std::int64_t to, int nr, int columns,
                  const std::int32_t* sums, std::int32_t* acc) {
  for (auto at = windows.first_outside(from); at != windows.outside.end() && at->pixel < to; ++at)
    for (int c = 0; c < columns; ++c) acc[at->pixel * nr + c] += sums[at->tap * nr + c];
}

/// Windows of a block of `count`: a multiple of what tiles take at most at once.
std::int64_t block_of(std::int64_t count, const Tile& tile) {
  const std::int64_t unit = tile.mr, most = tile.strides ? tile.mr * tiles_a_block : windows_a_block;
  const std::int64_t blocks = std::max<std::int64_t>(1, (count + most / 2) / most);
  const std::int64_t each = (count + blocks - 1) / blocks;
  return tile.strides ? most : (each + unit - 1) / unit * unit;
}

/// Code-tail passes of the lowest instruction set that has tiles.
const CodeTailPasses& least_passes() {
#if defined(BIE_X86)
  return avx2::code_tail_passes;
#else
  return plain::code_tail_passes;
#endif
}

}  // namespace

bool run_tail(const Tile& tile, const Conv2dTail& t, float y_scale, const std::int32_t* acc, std::int64_t outputs,
              int columns, std::int64_t stride, std::int64_t output, std::int64_t channel) {
  const auto of_channel = [channel](const float* all) { return all == nullptr ? nullptr : all + channel; };
  const std::int64_t at = output * stride + channel;
  const TailArgs args = {acc,
                         nullptr,
                         nullptr,
                         tile.nr,
                         outputs,
                         columns,
                         y_scale,
                         of_channel(t.scale),
                         of_channel(t.shift),
                         t.add == nullptr ? nullptr : t.add + at,
                         t.slope,
                         t.cuts,
                         t.v == nullptr ? nullptr : t.v + at,
                         t.codes == nullptr ? nullptr : t.codes + at,
                         stride,
                         of_channel(t.bias),
                         t.step,
                         t.lo,
                         t.hi,
                         t.signs};
  return tile.tail != nullptr ? tile.tail(args) : least_passes().tail_rows(args);
}

bool joins_rows(const Tile& tile, const Conv2dShape& s) {
  if (s.groups != 1 || s.kernel_w < 2 || s.in_c < 1 || s.in_c > most_joined_channels) return false;
  const PanelLayout apart(tile, 0, s.in_c, s.kernel_w), joined(tile, 0, s.in_c, s.kernel_w, s.kernel_w);
  return 8 * joined.units <= 7 * apart.units * s.kernel_w;  // joining takes a pass over the codes
}

PanelLayout conv2d_layout(const Tile& tile, const Conv2dShape& s) {
  const std::int64_t joined = joins_rows(tile, s) ? s.kernel_w : 1;
  return {tile, s.group_out(), s.group_in(), s.taps(), joined, tile.code == Code::bits && s.pad_code == 0};
}

void prepack_conv2d(const Tile& tile, const Width& width, const void* weight, const Conv2dShape& s, void* packed,
                    const Parallel& parallel) {
  const PanelLayout layout = conv2d_layout(tile, s);
  const std::int64_t joined = joins_rows(tile, s) ? s.kernel_w : 1;
  const std::int64_t group_rows = s.group_out() * row_bytes(width.code, s.depth());
  for (std::int64_t g = 0; g < s.groups; ++g)
    pack_panels(tile, width, static_cast<const char*>(weight) + g * group_rows, s.group_out(), s.group_in(), s.taps(),
                joined, layout.sums_offset != 0,
                static_cast<char*>(packed) + g * static_cast<std::int64_t>(layout.bytes()), parallel);
}

bool is_deep(const Width& width, const Conv2dShape& s, const Conv2dInput& x, const Conv2dOutput& y) {
  return check_conv2d(s, x, y, width.code, width.max_k) == Status::ok && s.groups == 1 && s.depth() >= 64 &&
         s.out_h() * s.out_w() >= 16;
}

Status run_conv2d(const Tile& tile, const Width& width, const Conv2dShape& given, const Conv2dInput& x,
                  const void* packed, const Conv2dOutput& y, const Parallel& parallel) {
  const Status checked = check_conv2d(given, x, y, width.code, width.max_k);
  if (checked != Status::ok) return checked;
  const std::int64_t plane = given.out_h() * given.out_w();
  if (given.batch == 0 || given.out_c == 0 || plane == 0) return Status::ok;
  const PanelLayout layout = conv2d_layout(tile, given);
  const auto padded_pixel = static_cast<double>(given.groups * layout.code_bytes);
  if (static_cast<double>(given.batch) * padded_plane(given) * padded_pixel > most_image_bytes)
    return Status::out_of_memory;
  const Conv2dShape read = without_skipped_lines(given);
  const Conv2dShape s = joins_rows(tile, given) ? with_joined_rows(read) : read;  // what is multiplied
  const Image image(given, s, layout.code_bytes);
  const std::int64_t image_bytes = image.height * image.row_bytes();
  char* codes = static_cast<char*>(workspace(static_cast<std::size_t>(s.batch * image_bytes + code_slack)));
  if (codes == nullptr) return Status::out_of_memory;

  std::atomic<bool> finite{true}, enough{true};  // enough memory
  const ImageRows rows{tile, width, given, x, image, outside_of(tile.code, 0)};
  const std::int64_t encode_grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, s.in_w * s.in_c));
  parallel_for(parallel, s.batch * image.height, encode_grain, [&](std::int64_t begin, std::int64_t end) {
    if (!encode_image(rows, begin, end, codes)) finite.store(false, std::memory_order_relaxed);
  });
  if (!finite.load()) return Status::not_finite;

  const bool nhwc = y.layout == ImageLayout::nhwc;
  const Lines lines(tile, s, image, nhwc);
  const std::int64_t block_pixels = block_of(lines.count, tile),
                     blocks = (lines.count + block_pixels - 1) / block_pixels;
  const std::int64_t acc_rows = (block_pixels + 15) / 16 * 16;  // planes are made of 16 at a time
  const std::int64_t group_panels = s.groups * layout.panels;
  const std::int64_t item_work = std::min(plane, block_pixels) * tile.nr * std::max<std::int64_t>(1, s.depth());
  const std::int64_t grain = std::max<std::int64_t>(1, width.task_work / item_work);
  const std::int64_t element = row_bytes(y.dtype, 1), row_step = s.stride_w * image.pixel_bytes;
  const bool take_back = layout.sums_offset != 0, tailed = y.tail != nullptr;
  const std::int64_t output_bytes = s.batch * plane * s.out_c * element;
  const bool streamed = tile.strides && nhwc && !tailed && output_bytes >= huge_output;
  const bool fetch_output = !streamed && !tailed && output_bytes >= large_output;
  // All tiles of a block go at once, unless the lines of many planes are prefetched between tiles.
  const bool at_once = !tile.strides && !take_back && (nhwc || !fetch_output);
  const WorkOrder order(lines.segments * blocks, group_panels, parallel.threads);
  parallel_for(parallel, order.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    // Accumulators of the block's pixels, and of one of its columns.
    auto* const acc = static_cast<std::int32_t*>(
        workspace(static_cast<std::size_t>(acc_rows * (tile.nr + 1)) * sizeof(std::int32_t), Buffer::tile));
    const OpenedPanel opened(tile, layout.units * s.taps());
    if (acc == nullptr || !opened.enough()) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    const TileState state(tile);
    std::int32_t* const column_run = acc + acc_rows * tile.nr;
    thread_local Windows windows;
    windows.fit(s, image, block_pixels);
    const std::int64_t taps = windows.taps(), units = layout.units * s.taps() / taps;
    std::int64_t known = -1;
    for (std::int64_t item = begin; item < end; ++item) {
      const auto [block, panel_number] = order.item(item);
      const std::int64_t group = panel_number / layout.panels;
      const std::int64_t segment = block / blocks, first = block % blocks * block_pixels;
      const std::int64_t pixels = std::min(block_pixels, lines.count - first);
      const std::int64_t first_output = lines.outputs(first), outputs = lines.outputs(first + pixels) - first_output;
      if (block * s.groups + group != known)
        windows.find(given, s, image, lines, codes + segment * image_bytes + group * image.group_bytes, first, pixels,
                     tile.mr, take_back);
      known = block * s.groups + group;
      const char* panel = static_cast<const char*>(packed) + panel_number * layout.panel_bytes;
      const std::int64_t column = panel_number % layout.panels * tile.nr, channel = group * s.group_out() + column;
      const int columns = static_cast<int>(std::min<std::int64_t>(tile.nr, s.group_out() - column));
      const void* const weights = opened.open(panel + tile.nr * 4);
      const auto* sums = reinterpret_cast<const std::int32_t*>(panel + layout.sums_offset);
      const std::int64_t place = nhwc ? (segment * plane + first_output) * s.out_c + channel
                                      : (segment * s.out_c + channel) * plane + first_output;
      char* out =
          y.data == nullptr ? nullptr : static_cast<char*>(y.data) + place * element;  // a tail has outputs of its own
      std::int64_t line_left = lines.width - first % lines.width;  // windows of the line that a tile begins in
      std::int64_t stored = 0;                                     // outputs of the block
      const std::int64_t most_rows = at_once ? pixels : tile.mr;
      for (std::int64_t done = 0; done < pixels; done += most_rows) {
        const int rows_here = static_cast<int>(std::min(most_rows, pixels - done));
        const std::int64_t end_here = lines.outputs(first + done + rows_here) - first_output;
        if (fetch_output && nhwc) {
          prefetch_output(out + stored * s.out_c * element, end_here - stored, s.out_c * element, columns * element);
        } else if (fetch_output) {
          const std::int64_t c = done * columns / pixels, next = (done + rows_here) * columns / pixels;
          prefetch_output(out + c * plane * element, next - c, plane * element, outputs * element);
        }
        const bool inside = windows.all_inside(done, done + rows_here);
        const bool direct = y.dtype == Dtype::f32 && nhwc && inside && !tailed;  // written by the tile itself
        TileArgs args = {windows.rows.data() + done,
                         windows.tap_offsets.data(),
                         lines.even || rows_here <= line_left ? row_step : 0,
                         taps,
                         units,
                         rows_here,
                         columns,
                         reinterpret_cast<const std::int32_t*>(panel),
                         weights,
                         acc + stored * tile.nr,
                         direct ? reinterpret_cast<float*>(out) + stored * s.out_c : nullptr,
                         s.out_c,
                         y.scale};
        if (lines.even) args.kept = windows.kept[done / tile.mr];
        args.streamed = streamed;
        tile.run(args);
        for (line_left -= rows_here; line_left <= 0;) line_left += lines.width;
        if (!inside) add_tap_sums(windows, done, done + rows_here, tile.nr, columns, sums, acc);
        if (!nhwc || direct || tailed) stored = end_here;
        for (; stored < end_here; ++stored)
          tile.store({acc + stored * tile.nr, columns, y.scale, y.dtype, out + stored * s.out_c * element});
      }
      if (tailed &&
          !run_tail(tile, *y.tail, y.scale, acc, outputs, columns, s.out_c, segment * plane + first_output, channel))
        finite.store(false, std::memory_order_relaxed);
      if (nhwc) continue;
      if (tile.store_planes != nullptr) {
        tile.store_planes({acc, tile.nr, outputs, columns, y.scale, y.dtype, out, plane});
      } else {
        for (int c = 0; c < columns; ++c) {
          for (std::int64_t i = 0; i < outputs; ++i) column_run[i] = acc[i * tile.nr + c];
          tile.store({column_run, outputs, y.scale, y.dtype, out + c * plane * element});
        }
      }
    }
  });
  if (!enough.load()) return Status::out_of_memory;
  return finite.load() ? Status::ok : Status::not_finite;
}

}  // namespace bie::kernels::cpu
