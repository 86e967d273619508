#include "kernels/cpu/grouped_conv2d/grouped_conv2d_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/conv2d/conv2d_driver.h"
#include "kernels/cpu/conv2d/pixel_rows.h"

namespace bie::kernels::cpu {
namespace {

constexpr std::int64_t unit_bytes = 4, line_bytes = grouped_lanes * unit_bytes;  // of the units of all lanes
constexpr std::int64_t least_pixels = 64;                                        // stored at once, about
constexpr std::int64_t least_rows = 8;                                           // per task, where there are so many

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// How the codes of a group lie in units.
struct Units {
  std::int64_t codes;     ///< per unit
  std::int64_t held;      ///< of those, of one pixel
  std::int64_t pixels;    ///< that share a unit
  std::int64_t of_pixel;  ///< units of a pixel

  Units(const GroupedTile& tile, const Conv2dShape& s)
      : codes(unit_bytes / code_size(tile.rows.code, 1)),
        held(s.group_in() <= 2 ? std::min(codes, std::max<std::int64_t>(1, s.group_in())) : codes),
        pixels(codes / held),
        of_pixel(std::max<std::int64_t>(1, (s.group_in() + held - 1) / held)) {}
  /// Units of a row of a window.
  std::int64_t of_row(const Conv2dShape& s) const { return (s.kernel_w + pixels - 1) / pixels * of_pixel; }
  /// Codes that lie without gaps.
  bool dense(const Conv2dShape& s) const { return s.group_in() % held == 0; }
};

/// A block is grouped_lanes start values and, for every row of a window and its units, a unit of weights per lane.
struct Blocks {
  std::int64_t count, taps, bytes;

  Blocks(const Units& units, const Conv2dShape& s)
      : count((s.out_c + grouped_lanes - 1) / grouped_lanes),
        taps(s.kernel_h * units.of_row(s)),
        bytes((taps + 1) * line_bytes) {}
};

bool is_sign(Code code) { return code == Code::u8_b1 || code == Code::f32_b1; }

/// Groups that grouped_lanes neighbouring outputs belong to at most.
std::int64_t groups_of_block(const Conv2dShape& s) {
  const std::int64_t outputs = s.group_out();
  const std::int64_t most = outputs == 0                   ? 1
                            : grouped_lanes % outputs == 0 ? grouped_lanes / outputs
                                                           : (grouped_lanes - 2) / outputs + 2;
  return std::min(most, s.groups);
}

/// The code of a checkpoint row.
int code_at(const std::uint8_t* row, Dtype code, std::int64_t i) {
  if (code == Dtype::bits) return (row[i / 8] >> (i % 8) & 1) != 0 ? 1 : -1;
  if (code == Dtype::s8) return static_cast<std::int8_t>(row[i]);
  return ((i % 2 == 0 ? row[i / 2] >> 4 : row[i / 2] & 15) ^ 8) - 8;
}

void pack_output(const Units& units, const Conv2dShape& s, const std::uint8_t* row, const Width& width, int zero,
                 std::int64_t lane, char* block) {
  std::uint32_t start = 0;  // unsigned wrap-around is meant: the sums are modulo 2^32 and the final one fits
  std::int64_t i = 0;
  for (std::int64_t c = 0; c < s.group_in(); ++c)
    for (std::int64_t tap = 0; tap < s.taps(); ++tap, ++i) {
      const int code = code_at(row, width.code, i);
      start -= static_cast<std::uint32_t>(zero * code);
      const std::int64_t column = tap % s.kernel_w;
      const std::int64_t unit =
          tap / s.kernel_w * units.of_row(s) + column / units.pixels * units.of_pixel + c / units.held;
      const std::int64_t place = column % units.pixels * units.held + c % units.held;
      char* const at = block + (unit + 1) * line_bytes + lane * unit_bytes;
      if (units.codes == unit_bytes) {
        at[place] = static_cast<char>(code);
      } else if (units.codes == 1) {
        const auto wide = static_cast<float>(code);
        std::memcpy(at, &wide, unit_bytes);
      } else {
        const auto wide = static_cast<std::int16_t>(code);
        std::memcpy(at + 2 * place, &wide, 2);
      }
    }
  std::memcpy(block + lane * unit_bytes, &start, unit_bytes);
}

/// Which unit of a pixel, counted from the first group of a block, each lane reads first. True: lane i reads unit i.
bool find_lanes(const Units& units, const Conv2dShape& s, std::int64_t first, std::int32_t* lanes) {
  bool in_order = units.of_pixel == 1;
  for (std::int64_t i = 0; i < grouped_lanes; ++i) {
    const std::int64_t output = std::min(first + i, s.out_c - 1);
    lanes[i] = static_cast<std::int32_t>((output / s.group_out() - first / s.group_out()) * units.of_pixel);
    in_order = in_order && lanes[i] == (first + i < s.out_c ? i : lanes[i]);
  }
  return in_order;
}

/// Units of the lines of an image that windows read, for one block of outputs: line y lies at place y % count. Lines
/// above and below the image are one, which lies behind the others.
struct Ring {
  const GroupedTile& tile;
  const Units& units;
  const Image& image;
  std::int64_t above;  ///< the image, whose lines have the padding beside them alone
  std::int64_t count;
  char* memory;
  std::int64_t next = 0, place = 0;  ///< the first line that is not there, and where it will be

  std::int64_t bytes() const { return image.width * units.of_pixel * line_bytes; }
  bool inside(std::int64_t y) const { return y >= above && y < above + image.height; }
  /// A line that is there.
  const char* line(std::int64_t y) const {
    if (!inside(y)) return memory + count * bytes();
    const std::int64_t at = place - (next - y);
    return memory + (at < 0 ? at + count : at) * bytes();
  }
  void empty() { next = place = 0; }
  void fill_outside(std::uint32_t unit) const {
    char* const line = memory + count * bytes();
    for (std::int64_t i = 0; i < bytes(); i += unit_bytes) std::memcpy(line + i, &unit, unit_bytes);
  }

  /// Lines up to `last` - 1, of which those from `first` on are needed.
  void fill(const char* codes, std::int64_t step, const std::int32_t* lanes, std::int64_t first, std::int64_t last) {
    if (next < first) {
      next = first;
      place = first % count;
    }
    for (; next < last; ++next) {
      if (inside(next))
        tile.spread({codes + (next - above) * image.row_bytes(), image.pixel_bytes, image.width,
                     static_cast<int>(units.held * unit_bytes / units.codes), units.of_pixel, step, lanes,
                     memory + place * bytes()});
      place = place + 1 == count ? 0 : place + 1;
    }
  }
};

/// Stores some rows of a block's outputs, [pixels][grouped_lanes] sums.
struct Results {
  const Tile& tile;
  const Conv2dShape& s;
  const Conv2dOutput& y;
  std::int32_t* column;  ///< scratch of as many pixels as are stored at once

  std::int64_t element() const { return row_bytes(y.dtype, 1); }
  std::int64_t plane() const { return s.out_h() * s.out_w(); }
  char* place(std::int64_t image, std::int64_t pixel, std::int64_t channel) const {
    const std::int64_t at = y.layout == ImageLayout::nhwc ? (image * plane() + pixel) * s.out_c + channel
                                                          : (image * s.out_c + channel) * plane() + pixel;
    return static_cast<char*>(y.data) + at * element();
  }

  /// False where a tail's code is not finite.
  bool store(const std::int32_t* acc, std::int64_t pixels, int columns, std::int64_t image, std::int64_t pixel,
             std::int64_t channel) const {
    if (y.tail != nullptr)
      return run_tail(tile, *y.tail, y.scale, acc, pixels, columns, s.out_c, image * plane() + pixel, channel);
    char* const out = place(image, pixel, channel);
    if (y.layout == ImageLayout::nhwc) {
      for (std::int64_t p = 0; p < pixels; ++p)
        tile.store({acc + p * grouped_lanes, columns, y.scale, y.dtype, out + p * s.out_c * element()});
    } else if (tile.store_planes != nullptr) {
      tile.store_planes({acc, grouped_lanes, pixels, columns, y.scale, y.dtype, out, plane()});
    } else {
      for (int c = 0; c < columns; ++c) {
        for (std::int64_t p = 0; p < pixels; ++p) column[p] = acc[p * grouped_lanes + c];
        tile.store({column, pixels, y.scale, y.dtype, out + c * plane() * element()});
      }
    }
    return true;
  }
};

}  // namespace

bool suits_lanes(const GroupedTile& tile, const Conv2dShape& s) {
  if (s.groups < 2 || s.in_c < s.groups || s.out_c < s.groups || s.in_c % s.groups != 0 || s.out_c % s.groups != 0)
    return false;
  const Units units(tile, s);
  if (s.depth() > tile.max_depth) return false;
  // With zero padding, bits would have to subtract what they read there, which costs more than bytes do.
  const bool zeros = is_sign(tile.rows.code) && s.pad_code == 0 && s.taps() > 1;
  const std::int64_t most_outputs = units.pixels > 1 ? s.group_out() : zeros ? grouped_lanes : grouped_lanes - 1;
  return s.group_out() <= most_outputs && groups_of_block(s) * units.of_pixel <= grouped_lanes;
}

std::size_t grouped_conv2d_bytes(const GroupedTile& tile, const Conv2dShape& s) {
  const Blocks blocks(Units(tile, s), s);
  return static_cast<std::size_t>(blocks.count * blocks.bytes);
}

void prepack_grouped_conv2d(const GroupedTile& tile, const Width& width, const void* weight, const Conv2dShape& s,
                            void* packed, const Parallel& parallel) {
  const Units units(tile, s);
  const Blocks blocks(units, s);
  const std::int64_t row = row_bytes(width.code, s.depth());
  const int zero = zero_code(tile.rows.code);
  parallel_for(parallel, blocks.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      char* const block = static_cast<char*>(packed) + b * blocks.bytes;
      std::memset(block, 0, static_cast<std::size_t>(blocks.bytes));
      for (std::int64_t lane = 0; lane < std::min<std::int64_t>(grouped_lanes, s.out_c - b * grouped_lanes); ++lane)
        pack_output(units, s, static_cast<const std::uint8_t*>(weight) + (b * grouped_lanes + lane) * row, width, zero,
                    lane, block);
    }
  });
}

Status run_grouped_conv2d(const GroupedTile& tile, const Width& width, const Conv2dShape& given, const Conv2dInput& x,
                          const void* packed, const Conv2dOutput& y, const Parallel& parallel) {
  const Status checked = check_conv2d(given, x, y, width.code, width.max_k);
  if (checked != Status::ok) return checked;
  const Conv2dShape s = without_skipped_lines(given);
  const std::int64_t out_h = s.out_h(), out_w = s.out_w();
  if (s.batch == 0 || s.out_c == 0 || out_h * out_w == 0) return Status::ok;
  const Units units(tile, s);
  const Blocks blocks(units, s);

  Conv2dShape of_x = given, rows_of = s;
  if (units.dense(s)) of_x.groups = rows_of.groups = 1;  // groups without gaps are quantised as one
  rows_of.pad_h = 0;                                     // the ring has lines of padding
  if (!skips(given.kernel_h, given.stride_h)) of_x.pad_h = 0;
  const std::int64_t code_bytes = round_up(code_size(tile.rows.code, rows_of.group_in()), unit_bytes);
  const Image image(of_x, rows_of, code_bytes);
  // Two rows of outputs read some lines both, where each line of the second one's window is one of the first one's.
  const std::int64_t shift = s.stride_h % s.dil_h == 0 ? s.stride_h / s.dil_h : s.kernel_h;
  const bool pairs = shift < s.kernel_h && out_h > 1;
  const std::int64_t window_lines = (s.kernel_h - 1) * s.dil_h + 1,
                     ring_lines = window_lines + (pairs ? s.stride_h : 0);
  if (static_cast<double>(s.batch) * padded_plane(s) * static_cast<double>(image.pixel_bytes) > most_image_bytes ||
      static_cast<double>(ring_lines) * static_cast<double>(image.width * units.of_pixel) > most_image_bytes / 64)
    return Status::out_of_memory;
  const std::int64_t image_bytes = image.height * image.row_bytes();
  char* codes = static_cast<char*>(workspace(static_cast<std::size_t>(s.batch * image_bytes + code_slack)));
  if (codes == nullptr) return Status::out_of_memory;

  std::atomic<bool> finite{true}, enough{true};  // enough memory
  const ImageRows rows{tile.rows, width, of_x, x, image, outside_of(tile.rows.code, s.pad_code)};
  const std::int64_t encode_grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, s.in_w * s.in_c));
  parallel_for(parallel, s.batch * image.height, encode_grain, [&](std::int64_t begin, std::int64_t end) {
    if (!encode_image(rows, begin, end, codes)) finite.store(false, std::memory_order_relaxed);
  });
  if (!finite.load()) return Status::not_finite;

  const std::int64_t plane_blocks = s.batch * blocks.count;
  const std::int64_t wanted = (4 * parallel.threads + plane_blocks - 1) / plane_blocks;  // parts of a plane
  const std::int64_t parts =
      parallel.threads == 1 ? 1 : std::clamp<std::int64_t>(out_h / least_rows, 1, std::max<std::int64_t>(1, wanted));
  const std::int64_t together = std::clamp<std::int64_t>(least_pixels / out_w, 2, std::max<std::int64_t>(2, out_h));
  const std::int64_t grain =
      std::max<std::int64_t>(1, width.task_work / (1 + out_h / parts * out_w * blocks.taps * line_bytes));
  const bool direct = y.dtype == Dtype::f32 && y.layout == ImageLayout::nhwc && y.tail == nullptr;
  parallel_for(parallel, plane_blocks * parts, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t acc_pixels = round_up(together * out_w, 16);  // planes are made of 16 at a time
    Ring ring = {tile, units, image, s.pad_h, ring_lines, nullptr};
    auto* const acc = static_cast<std::int32_t*>(
        workspace(static_cast<std::size_t>(acc_pixels * (grouped_lanes + 1)) * sizeof(std::int32_t), Buffer::tile));
    ring.memory =
        static_cast<char*>(workspace(static_cast<std::size_t>((ring_lines + 1) * ring.bytes()), Buffer::opened));
    if (acc == nullptr || ring.memory == nullptr) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    ring.fill_outside(rows.outside);
    const Results results{tile.rows, s, y, acc + acc_pixels * grouped_lanes};
    thread_local std::vector<const void*> taps;  // kept, as a workspace is
    taps.resize(static_cast<std::size_t>((s.kernel_h + shift) * units.of_row(s)));
    bool all_finite = true;
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t part = item % parts, block = item / parts % blocks.count, n = item / parts / blocks.count;
      const std::int64_t first = block * grouped_lanes;
      const int columns = static_cast<int>(std::min<std::int64_t>(grouped_lanes, s.out_c - first));
      std::int32_t lanes[grouped_lanes];
      const bool in_order = find_lanes(units, s, first, lanes);
      const char* const from =
          codes + n * image_bytes +
          first / s.group_out() * (units.dense(s) ? code_size(tile.rows.code, s.group_in()) : image.group_bytes);
      const char* const weights = static_cast<const char*>(packed) + block * blocks.bytes;
      ring.empty();
      const std::int64_t last_row = out_h * (part + 1) / parts;
      for (std::int64_t row = out_h * part / parts, count; row < last_row; row += count) {
        count = std::min(together, last_row - row);
        for (std::int64_t r = 0, here; r < count; r += here) {
          here = pairs && count - r > 1 ? 2 : 1;
          const std::int64_t top = (row + r) * s.stride_h;
          ring.fill(from, s.dil_w, in_order ? nullptr : lanes, top, top + window_lines + (here - 1) * s.stride_h);
          std::size_t t = 0;
          for (std::int64_t i = 0; i < s.kernel_h + (here - 1) * shift; ++i) {
            const char* const line = ring.line(top + i * s.dil_h);
            for (std::int64_t j = 0; j < s.kernel_w; j += units.pixels)
              for (std::int64_t u = 0; u < units.of_pixel; ++u)
                taps[t++] = line + (j * s.dil_w * units.of_pixel + u) * line_bytes;
          }
          tile.run({taps.data(), blocks.taps, static_cast<int>(here), shift * units.of_row(s),
                    s.stride_w * units.of_pixel * line_bytes, out_w, reinterpret_cast<const std::int32_t*>(weights),
                    weights + line_bytes, acc + r * out_w * grouped_lanes,
                    direct ? reinterpret_cast<float*>(results.place(n, (row + r) * out_w, first)) : nullptr, s.out_c,
                    columns, y.scale});
        }
        if (!direct) all_finite = results.store(acc, count * out_w, columns, n, row * out_w, first) && all_finite;
      }
    }
    if (!all_finite) finite.store(false, std::memory_order_relaxed);
  });
  if (!enough.load()) return Status::out_of_memory;
  return finite.load() ? Status::ok : Status::not_finite;
}

}  // namespace bie::kernels::cpu
