#include "kernels/cpu/conv2d/pixel_conv2d_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/conv2d/pixel_rows.h"

namespace bie::kernels::cpu {
namespace {

constexpr std::int64_t slack_words = 64;        // a gather may read that far beyond a window
constexpr std::int64_t most_pixel_depth = 256;  // codes only: windows of more take the first cache from the weights

/// Planes of words with the padding around them: [batch][groups][units][height][width]. A unit is what one word holds.
struct Planes {
  std::int64_t unit_codes, units, height, width;

  Planes(const Tile& tile, const Conv2dShape& s, const PanelLayout& layout)
      : unit_codes(tile.code == Code::bits ? 32 : 4),
        units(layout.units * tile.unit_codes / unit_codes),
        height(s.in_h + 2 * s.pad_h),
        width(s.in_w + 2 * s.pad_w) {}
  std::int64_t plane() const { return height * width; }
  std::int64_t words(const Conv2dShape& s) const { return s.batch * s.groups * units * plane() + slack_words; }
};

/// Fills the padding of a plane.
void surround(const Conv2dShape& s, const Planes& p, std::uint32_t outside, std::uint32_t* plane) {
  const std::int64_t lead = s.pad_h * p.width + s.pad_w;
  std::fill_n(plane, lead, outside);
  plane += lead;
  for (std::int64_t row = 0; row + 1 < s.in_h; ++row, plane += p.width)
    std::fill_n(plane + s.in_w, 2 * s.pad_w, outside);
  std::fill_n(plane + (s.in_h > 0 ? s.in_w : 0), lead, outside);
}

/// Plane `item` of words, which counts images, groups and units; false where NaN or infinity was seen. `run` is
/// [in_h * in_w] words of scratch; `s` was made of `given`.
bool encode_plane(const Tile& tile, const Width& width, const Conv2dShape& given, const Conv2dShape& s,
                  const Conv2dInput& x, const Planes& p, std::int64_t item, std::vector<std::uint32_t>& run,
                  std::uint32_t* words) {
  const std::int64_t plane = s.in_h * s.in_w, given_plane = given.in_h * given.in_w, image = item / p.units,
                     unit = p.unit_codes * (item % p.units);
  const std::int64_t first = image % s.groups * s.group_in() + unit;  // of the image's channels
  const std::int64_t channels = std::clamp<std::int64_t>(s.group_in() - unit, 0, p.unit_codes);
  const char* from =
      static_cast<const char*>(x.data) + row_bytes(x.dtype, (image / s.groups * s.in_c + first) * given_plane);
  const std::int64_t step_h = given.stride_h / s.stride_h, step_w = given.stride_w / s.stride_w;
  const bool even = tile.code != Code::bits && step_w == 2;  // which the encoder of planes picks
  std::int64_t from_plane = given_plane;
  if (step_h * step_w > 1 && !even) {
    thread_local std::vector<char> picked;  // kept, as a workspace is
    const std::int64_t element = row_bytes(x.dtype, 1);
    picked.resize(static_cast<std::size_t>(channels * plane * element));
    pick({from, given_plane, given.in_w, element, channels, s.in_h, s.in_w, step_h, step_w}, picked.data());
    from = picked.data();
    from_plane = plane;
  }
  const float* const bias = x.bias == nullptr ? nullptr : x.bias + first;
  std::uint32_t* to = words + item * p.plane();
  surround(s, p, tile.code == Code::bits ? 0 : outside_of(tile.code, 0), to);
  to += s.pad_h * p.width + s.pad_w;
  if (tile.code != Code::bits)
    return tile.code_planes({from, x.dtype, channels, plane, from_plane, bias, x.step, width.lo, width.hi, tile.code,
                             to, 4, 4, 0, s.in_w, 8 * s.pad_w, even ? 2 : 1, step_h * given.in_w});
  run.resize(static_cast<std::size_t>(plane));
  const bool finite = tile.sign_planes({from, x.dtype, channels, plane, plane, bias, run.data(), plane});
  for (std::int64_t row = 0; row < s.in_h; ++row)
    std::memcpy(to + row * p.width, run.data() + row * s.in_w, static_cast<std::size_t>(4 * s.in_w));
  return finite;
}

/// Joined rows of a window as planes of words: byte i of unit u is the code of tap and channel 4u + i, [tap][channel].
class JoinedPlanes {
 public:
  /// `s` was made of `of`.
  JoinedPlanes(const Tile& tile, const Width& width, const PixelTile& pixels, const Conv2dShape& of,
               const Conv2dInput& x, const Planes& planes)
      : tile_(tile),
        width_(width),
        pixels_(pixels),
        s_(of),
        x_(x),
        p_(planes),
        line_(of.in_w + 2 * of.pad_w + slack),
        phase_(line_ / of.stride_w + slack) {}

  /// Rows begin ... end - 1, which count images; false where NaN or infinity was seen.
  bool encode(std::int64_t begin, std::int64_t end, std::uint32_t* words) const {
    thread_local std::vector<std::uint8_t> memory;  // kept, as a workspace is; so below
    const std::uint8_t zero = static_cast<std::uint8_t>(zero_code(tile_.code));
    memory.assign(static_cast<std::size_t>(s_.in_c * (most_rows * line_ + s_.stride_w * phase_) + phase_), zero);
    bool finite = true;
    for (std::int64_t row = begin, rows = 1; row < end; row += rows) {
      const std::int64_t n = row / p_.height, y = row % p_.height - s_.pad_h;
      std::uint32_t* const to = words + n * p_.units * p_.plane() + row % p_.height * p_.width;
      rows = 1;
      if (y < 0 || y >= s_.in_h) {
        for (std::int64_t u = 0; u < p_.units; ++u)
          std::fill_n(to + u * p_.plane(), p_.width, outside_of(tile_.code, 0));
        continue;
      }
      rows = std::min({end - row, s_.in_h - y, most_rows});
      for (std::int64_t c = 0; c < s_.in_c; ++c) {
        const char* const from =
            static_cast<const char*>(x_.data) + row_bytes(x_.dtype, ((n * s_.in_c + c) * s_.in_h + y) * s_.in_w);
        finite &= tile_.encode({from, x_.dtype, s_.in_w, x_.bias == nullptr ? nullptr : x_.bias + c, 0, x_.step,
                                width_.lo, width_.hi, tile_.code, memory.data() + c * most_rows * line_ + s_.pad_w,
                                s_.in_w, rows, row_bytes(x_.dtype, s_.in_w), line_});
      }
      for (std::int64_t r = 0; r < rows; ++r) join(memory.data(), r, to + r * p_.width);
    }
    return finite;
  }

 private:
  static constexpr std::int64_t slack = 16, most_rows = 8;  // quantised at once

  /// Row r of `lines` [in_c][most_rows][line_], behind which stands room for [in_c][stride_w][phase_] codes: those that
  /// windows move by lie in phases.
  void join(std::uint8_t* lines, std::int64_t r, std::uint32_t* to) const {
    const std::int64_t step = s_.stride_w, taps = s_.kernel_w * s_.in_c;
    std::uint8_t* const phases = lines + s_.in_c * most_rows * line_;
    for (std::int64_t c = 0; c < s_.in_c && step > 1; ++c)
      for (std::int64_t i = 0; i < step; ++i)
        split(lines + (c * most_rows + r) * line_ + i, step, line_ / step, phases + (c * step + i) * phase_);
    thread_local std::vector<const std::uint8_t*> from;
    from.clear();
    for (std::int64_t i = 0; i < 4 * p_.units; ++i) {
      const std::int64_t c = i % s_.in_c, at = i / s_.in_c * s_.dil_w;
      from.push_back(i >= taps   ? phases + s_.in_c * step * phase_  // which meet no weight
                     : step == 1 ? lines + (c * most_rows + r) * line_ + at
                                 : phases + (c * step + at % step) * phase_ + at / step);
    }
    pixels_.join({from.data(), p_.units, p_.width, to, p_.plane()});
  }

  static void split(const std::uint8_t* from, std::int64_t step, std::int64_t count, std::uint8_t* to) {
    if (step == 2)  // a loop of its own, with vectors
      for (std::int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
    else
      for (std::int64_t i = 0; i < count; ++i) to[i] = from[step * i];
  }

  const Tile& tile_;
  const Width& width_;
  const PixelTile& pixels_;
  const Conv2dShape& s_;
  const Conv2dInput& x_;
  const Planes& p_;
  const std::int64_t line_, phase_;
};

/// Offsets of the windows of output pixels first ... first + count - 1 into a plane.
void find_windows(const Conv2dShape& s, const Planes& p, std::int64_t first, int count, std::int32_t* offsets) {
  const std::int64_t out_w = s.out_w();
  std::int64_t top = first / out_w * s.stride_h, left = first % out_w * s.stride_w;
  for (int lane = 0; lane < count; ++lane, left += s.stride_w) {
    if (left == out_w * s.stride_w) top += s.stride_h, left = 0;
    offsets[lane] = static_cast<std::int32_t>(top * p.width + left);
  }
}

/// The taps of output pixels begin ... end - 1 that lie outside the image: bit p of outside[tap] for pixel begin + p.
void find_outside(const Conv2dShape& s, std::int64_t begin, std::int64_t end, std::uint64_t* outside) {
  const std::int64_t out_w = s.out_w(), across = s.dil_w * (s.kernel_w - 1), down = s.dil_h * (s.kernel_h - 1);
  for (std::int64_t pixel = begin; pixel < end; ++pixel) {
    const std::int64_t top = pixel / out_w * s.stride_h - s.pad_h, left = pixel % out_w * s.stride_w - s.pad_w;
    if (top >= 0 && left >= 0 && top + down < s.in_h && left + across < s.in_w) continue;
    for (std::int64_t i = 0; i < s.kernel_h; ++i)
      for (std::int64_t j = 0; j < s.kernel_w; ++j) {
        const std::int64_t y = top + i * s.dil_h, x = left + j * s.dil_w;
        if (y < 0 || y >= s.in_h || x < 0 || x >= s.in_w)
          outside[i * s.kernel_w + j] |= std::uint64_t{1} << (pixel - begin);
      }
  }
}

/// Blocks of a plane's outputs: as few as there can be, of nearly equal numbers of vectors.
struct Blocks {
  std::int64_t outputs, lanes, vectors, count;

  Blocks(std::int64_t plane, int vector)
      : outputs(plane),
        lanes(vector),
        vectors((plane + vector - 1) / vector),
        count((vectors * vector + pixel_lanes - 1) / pixel_lanes) {}
  /// The first output of a block.
  std::int64_t begin(std::int64_t block) const { return std::min(outputs, block * vectors / count * lanes); }
};

}  // namespace

bool suits_pixels(const Tile& tile, const Width& width, const Conv2dShape& s, const Conv2dInput& x,
                  const Conv2dOutput& y, int lanes) {
  if (check_conv2d(s, x, y, width.code, width.max_k) != Status::ok) return false;
  if (x.layout != ImageLayout::nchw || y.layout != ImageLayout::nchw) return false;
  const bool skips_lines = skips(s.kernel_h, s.stride_h) || skips(s.kernel_w, s.stride_w);
  const bool joined = joins_rows(tile, s);
  if (skips_lines && (joined || s.pad_h + s.pad_w > 0)) return false;
  const std::int64_t plane = s.out_h() * s.out_w(), outputs = s.group_out();
  if (plane == 0 || outputs == 0) return false;
  if (tile.code == Code::bits && joined) return false;
  // Offsets into a plane are int32.
  if (padded_plane(s) > INT32_MAX / 2) return false;
  if (tile.code != Code::bits && s.depth() > most_pixel_depth) return false;
  const auto filled = [lanes](std::int64_t count) { return (count + lanes - 1) / lanes * lanes; };
  // Outputs as lanes pay about a tenth for turning the results into planes.
  return 10 * filled(plane) * outputs <= 11 * filled(outputs) * plane;
}

Status run_pixel_conv2d(const Tile& tile, const Width& width, const PixelTile& pixels, const Conv2dShape& given,
                        const Conv2dInput& x, const void* packed, const Conv2dOutput& y, const Parallel& parallel) {
  const bool joined = joins_rows(tile, given);
  const Conv2dShape read = without_skipped_lines(given), s = joined ? with_joined_rows(read) : read;
  const std::int64_t out_plane = s.out_h() * s.out_w(), in_plane = s.in_h * s.in_w;
  if (s.batch == 0) return Status::ok;
  const PanelLayout layout = conv2d_layout(tile, given);
  const Planes planes(tile, s, layout);
  const std::int64_t images = s.batch * s.groups, taps = s.taps(), words = taps * planes.units;
  auto* buffer = static_cast<std::uint32_t*>(workspace(static_cast<std::size_t>(4 * planes.words(s) + 64)));
  if (buffer == nullptr) return Status::out_of_memory;
  std::fill_n(buffer + planes.words(s) - slack_words, slack_words, 0u);

  std::atomic<bool> finite{true};
  const std::int64_t encode_grain = std::max<std::int64_t>(
      1, 32768 / std::max<std::int64_t>(1, joined ? given.in_c * given.in_w : planes.unit_codes * in_plane));
  const JoinedPlanes joined_planes(tile, width, pixels, given, x, planes);
  parallel_for(parallel, joined ? s.batch * planes.height : images * planes.units, encode_grain,
               [&](std::int64_t begin, std::int64_t end) {
                 if (joined && !joined_planes.encode(begin, end, buffer))
                   finite.store(false, std::memory_order_relaxed);
                 if (joined) return;
                 thread_local std::vector<std::uint32_t> run;  // kept, as a workspace is; so below
                 for (std::int64_t item = begin; item < end; ++item)
                   if (!encode_plane(tile, width, given, s, x, planes, item, run, buffer))
                     finite.store(false, std::memory_order_relaxed);
               });
  if (!finite.load()) return Status::not_finite;

  thread_local std::vector<std::int32_t> offsets_of_taps;
  std::vector<std::int32_t>& tap_offsets = offsets_of_taps;  // the caller's, whichever thread reads them
  tap_offsets.resize(static_cast<std::size_t>(taps));
  for (std::int64_t tap = 0; tap < taps; ++tap)
    tap_offsets[static_cast<std::size_t>(tap)] =
        static_cast<std::int32_t>(tap / s.kernel_w * s.dil_h * planes.width + tap % s.kernel_w * s.dil_w);

  const Blocks blocks(out_plane, pixels.lanes);
  const std::int64_t item_work =
      std::min<std::int64_t>(out_plane, pixel_lanes) * tile.nr * std::max<std::int64_t>(1, s.depth());
  const std::int64_t grain = std::max<std::int64_t>(1, width.task_work / item_work);
  const std::int64_t element = row_bytes(y.dtype, 1);
  const bool fetch_output = s.batch * s.out_c * out_plane * element >= large_output;
  const bool take_back = layout.sums_offset != 0 && s.pad_h + s.pad_w > 0;
  thread_local std::vector<std::uint64_t> outside_of_blocks;
  std::vector<std::uint64_t>& outside = outside_of_blocks;  // the caller's too, [blocks][taps]
  outside.assign(static_cast<std::size_t>(take_back ? blocks.count * taps : 0), 0);
  for (std::int64_t block = 0; block < blocks.count && take_back; ++block)
    find_outside(s, blocks.begin(block), blocks.begin(block + 1), outside.data() + block * taps);
  const WorkOrder order(images * blocks.count, layout.panels, parallel.threads);
  parallel_for(parallel, order.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::int32_t acc[pixel_rows * pixel_lanes];
    alignas(64) std::int32_t offsets[pixel_lanes] = {};
    thread_local std::vector<std::uint32_t> memory;
    memory.resize(static_cast<std::size_t>(words * pixel_lanes + 16));
    std::uint32_t* windows = memory.data();
    while (reinterpret_cast<std::uintptr_t>(windows) % 64 != 0) ++windows;
    std::int64_t known = -1;
    for (std::int64_t item = begin; item < end; ++item) {
      const auto [of_image, panel_number] = order.item(item);
      const std::int64_t image = of_image / blocks.count, block = of_image % blocks.count;
      const std::int64_t first = blocks.begin(block);
      const int count = static_cast<int>(blocks.begin(block + 1) - first);
      if (of_image != known) {
        find_windows(s, planes, first, count, offsets);
        pixels.gather({buffer + image * planes.units * planes.plane(), planes.plane(), planes.units, tap_offsets.data(),
                       taps, offsets, count, windows});
      }
      known = of_image;
      const bool at_once = y.dtype == Dtype::f32;
      const char* panel =
          static_cast<const char*>(packed) + (image % s.groups * layout.panels + panel_number) * layout.panel_bytes;
      const std::int64_t output = panel_number * tile.nr,
                         columns = std::min<std::int64_t>(tile.nr, s.group_out() - output);
      int rows = 0;
      for (std::int64_t column = 0; column < columns; column += rows) {
        rows = static_cast<int>(std::min<std::int64_t>(pixel_rows, columns - column));
        char* out =
            static_cast<char*>(y.data) + ((image * s.group_out() + output + column) * out_plane + first) * element;
        if (fetch_output) prefetch_output(out, rows, out_plane * element, count * element);
        pixels.run({windows, taps * layout.units, count, panel + tile.nr * 4 + column * tile.unit_bytes,
                    tile.nr * tile.unit_bytes, rows, reinterpret_cast<const std::int32_t*>(panel) + column, acc,
                    at_once ? reinterpret_cast<float*>(out) : nullptr, out_plane, y.scale,
                    take_back ? outside.data() + block * taps : nullptr, taps,
                    reinterpret_cast<const std::int32_t*>(panel + layout.sums_offset) + column, tile.nr});
        for (int r = 0; r < rows && !at_once; ++r)
          tile.store({acc + r * pixel_lanes, count, y.scale, y.dtype, out + r * out_plane * element});
      }
    }
  });
  return Status::ok;
}

}  // namespace bie::kernels::cpu
