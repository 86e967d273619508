#include "kernels/cpu/binary_conv2d_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/pixel_rows.h"

namespace bie::kernels::cpu {
namespace {

constexpr std::int64_t slack_words = 64;  // a gather may read that far beyond a window

/// Planes of words with the padding around them: [batch][groups][units][height][width], all words of the padding 0.
struct Planes {
  std::int64_t units, height, width;

  Planes(const Conv2dShape& s, std::int64_t unit_count)
      : units(unit_count), height(s.in_h + 2 * s.pad_h), width(s.in_w + 2 * s.pad_w) {}
  std::int64_t plane() const { return height * width; }
  std::int64_t words(const Conv2dShape& s) const { return s.batch * s.groups * units * plane() + slack_words; }
};

/// Plane `item` of words, which counts images, groups and units; false where NaN or infinity was seen. `run` is
/// [in_h * in_w] words of scratch; `s` was made of `given`.
bool encode_plane(const Tile& tile, const Conv2dShape& given, const Conv2dShape& s, const Conv2dInput& x,
                  const Planes& p, std::int64_t item, std::uint32_t* run, std::uint32_t* words) {
  const std::int64_t plane = s.in_h * s.in_w, given_plane = given.in_h * given.in_w, image = item / p.units,
                     unit = 32 * (item % p.units);
  const std::int64_t first = image % s.groups * s.group_in() + unit;  // of the image's channels
  const std::int64_t channels = std::min<std::int64_t>(32, s.group_in() - unit);
  const char* from =
      static_cast<const char*>(x.data) + row_bytes(x.dtype, (image / s.groups * s.in_c + first) * given_plane);
  if (plane < given_plane) {
    thread_local std::vector<char> picked;  // kept, as a workspace is
    const std::int64_t element = row_bytes(x.dtype, 1);
    picked.resize(static_cast<std::size_t>(channels * plane * element));
    pick({from, given_plane, given.in_w, element, channels, s.in_h, s.in_w, given.stride_h / s.stride_h,
          given.stride_w / s.stride_w},
         picked.data());
    from = picked.data();
  }
  const bool finite = tile.sign_planes(
      {from, x.dtype, channels, plane, plane, x.bias == nullptr ? nullptr : x.bias + first, run, plane});
  std::uint32_t* to = words + item * p.plane();
  std::fill_n(to, s.pad_h * p.width, 0u);
  to += s.pad_h * p.width;
  for (std::int64_t row = 0; row < s.in_h; ++row, to += p.width, run += s.in_w) {
    std::fill_n(to, s.pad_w, 0u);
    std::memcpy(to + s.pad_w, run, static_cast<std::size_t>(4 * s.in_w));
    std::fill_n(to + s.pad_w + s.in_w, s.pad_w, 0u);
  }
  std::fill_n(to, s.pad_h * p.width, 0u);
  return finite;
}

/// Offsets of the windows of output pixels first ... first + count - 1 into a plane.
void find_windows(const Conv2dShape& s, const Planes& p, std::int64_t first, int count, std::int32_t* offsets) {
  const std::int64_t out_w = s.out_w();
  std::int64_t top = first / out_w * s.stride_h, left = first % out_w * s.stride_w;
  for (int lane = 0; lane < count; ++lane, left += s.stride_w) {
    if (left == out_w * s.stride_w) top += s.stride_h, left = 0;
    offsets[lane] = static_cast<std::int32_t>(top * p.width + left);
  }
}

}  // namespace

bool suits_pixels(const Tile& tile, const Conv2dShape& s, const Conv2dInput& x, const Conv2dOutput& y, int lanes) {
  if (check_conv2d(s, x, y, Dtype::bits, binary_width.max_k) != Status::ok) return false;
  if (x.layout != ImageLayout::nchw || y.layout != ImageLayout::nchw) return false;
  const bool skips_lines = skips(s.kernel_h, s.stride_h) || skips(s.kernel_w, s.stride_w);
  if (joins_rows(tile, s) || (skips_lines && s.pad_h + s.pad_w > 0)) return false;
  const std::int64_t plane = s.out_h() * s.out_w(), outputs = s.group_out();
  if (plane == 0 || outputs == 0) return false;
  // What a -1 outside the image took is given back lane by lane here, pixel by pixel there, which is faster.
  if (s.pad_code == 0 && s.pad_h + s.pad_w > 0) return false;
  // Offsets into a plane are int32.
  if (padded_plane(s) > INT32_MAX / 2) return false;
  const auto filled = [lanes](std::int64_t count) { return (count + lanes - 1) / lanes * lanes; };
  // Outputs as lanes pay about a tenth for turning the results into planes.
  return 10 * filled(plane) * outputs <= 11 * filled(outputs) * plane;
}

Status run_pixel_conv2d(const Tile& tile, const PixelTile& pixels, const Conv2dShape& given, const Conv2dInput& x,
                        const void* packed, const Conv2dOutput& y, const Parallel& parallel) {
  const Conv2dShape s = without_skipped_lines(given);
  const std::int64_t out_plane = s.out_h() * s.out_w(), in_plane = s.in_h * s.in_w;
  if (s.batch == 0) return Status::ok;
  const PanelLayout layout = conv2d_layout(tile, s);
  const Planes planes(s, layout.units);
  const std::int64_t images = s.batch * s.groups, taps = s.taps(), words = taps * layout.units;
  auto* buffer = static_cast<std::uint32_t*>(workspace(static_cast<std::size_t>(4 * planes.words(s) + 64)));
  if (buffer == nullptr) return Status::out_of_memory;
  std::fill_n(buffer + planes.words(s) - slack_words, slack_words, 0u);

  std::atomic<bool> finite{true};
  const std::int64_t encode_grain = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(1, in_plane));
  parallel_for(parallel, images * layout.units, encode_grain, [&](std::int64_t begin, std::int64_t end) {
    thread_local std::vector<std::uint32_t> run;  // kept, as a workspace is; so below
    run.resize(static_cast<std::size_t>(in_plane));
    for (std::int64_t item = begin; item < end; ++item)
      if (!encode_plane(tile, given, s, x, planes, item, run.data(), buffer))
        finite.store(false, std::memory_order_relaxed);
  });
  if (!finite.load()) return Status::not_finite;

  thread_local std::vector<std::int32_t> offsets_of_taps;
  std::vector<std::int32_t>& tap_offsets = offsets_of_taps;  // the caller's, whichever thread reads them
  tap_offsets.resize(static_cast<std::size_t>(taps));
  for (std::int64_t tap = 0; tap < taps; ++tap)
    tap_offsets[static_cast<std::size_t>(tap)] =
        static_cast<std::int32_t>(tap / s.kernel_w * s.dil_h * planes.width + tap % s.kernel_w * s.dil_w);

  const std::int64_t blocks = (out_plane + pixel_lanes - 1) / pixel_lanes;
  const std::int64_t item_work =
      std::min<std::int64_t>(out_plane, pixel_lanes) * s.group_out() * std::max<std::int64_t>(1, s.depth());
  const std::int64_t grain = std::max<std::int64_t>(1, binary_width.task_work / item_work);
  const std::int64_t element = row_bytes(y.dtype, 1);
  const bool fetch_output = s.batch * s.out_c * out_plane * element >= large_output;
  parallel_for(parallel, images * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::int32_t acc[pixel_rows * pixel_lanes];
    alignas(64) std::int32_t offsets[pixel_lanes] = {};
    thread_local std::vector<std::uint32_t> memory;
    memory.resize(static_cast<std::size_t>(words * pixel_lanes + 16));
    std::uint32_t* windows = memory.data();
    while (reinterpret_cast<std::uintptr_t>(windows) % 64 != 0) ++windows;
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t image = item / blocks, first = item % blocks * pixel_lanes;
      const int count = static_cast<int>(std::min<std::int64_t>(pixel_lanes, out_plane - first));
      find_windows(s, planes, first, count, offsets);
      pixels.gather({buffer + image * layout.units * planes.plane(), planes.plane(), layout.units, tap_offsets.data(),
                     taps, offsets, count, windows});
      const std::int64_t group = image % s.groups;
      const bool at_once = y.dtype == Dtype::f32;
      const char* panels = static_cast<const char*>(packed) + group * static_cast<std::int64_t>(layout.bytes());
      int rows = 0;
      for (std::int64_t row = 0; row < s.group_out(); row += rows) {
        const std::int64_t column = row % tile.nr;
        rows = static_cast<int>(std::min<std::int64_t>({pixel_rows, s.group_out() - row, tile.nr - column}));
        const char* panel = panels + row / tile.nr * layout.panel_bytes;
        char* out = static_cast<char*>(y.data) + ((image * s.group_out() + row) * out_plane + first) * element;
        if (fetch_output) prefetch_output(out, rows, out_plane * element, count * element);
        pixels.run({windows, words, count, panel + tile.nr * 4 + column * tile.unit_bytes, tile.nr * tile.unit_bytes,
                    rows, static_cast<std::int32_t>(s.depth()), acc, at_once ? reinterpret_cast<float*>(out) : nullptr,
                    out_plane, y.scale});
        if (at_once) continue;
        for (int r = 0; r < rows; ++r)
          tile.store({acc + r * pixel_lanes, count, y.scale, y.dtype, out + r * out_plane * element});
      }
    }
  });
  return Status::ok;
}

}  // namespace bie::kernels::cpu
