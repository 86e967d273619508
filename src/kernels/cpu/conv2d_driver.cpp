#include "kernels/cpu/conv2d_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/check.h"

namespace bie::kernels::cpu {
namespace {

constexpr int tiles_a_block = 8;
constexpr int max_block = tiles_a_block * 512;  // accumulators of the largest tile times tiles_a_block
constexpr std::int64_t run_pixels = 64;         // pixels quantised at once from an NCHW plane

/// The code 0 in every place of a pixel row.
void fill_zero_pixel(Code code, std::int64_t bytes, char* out) {
  std::memset(out, zero_code(code), static_cast<std::size_t>(bytes));  // s16 has the zero byte 0
}

/// Channel-major codes of `pixels` neighbours to pixel rows, four bytes (one activation unit) at a time. T is one code;
/// channels beyond the last are read from `zeros`.
template <class T>
void transpose_codes(const T* planes, std::int64_t channels, std::int64_t pixels, std::int64_t pixel_bytes, char* out) {
  constexpr int together = 4 / sizeof(T);
  static constexpr T zeros[run_pixels] = {};
  for (std::int64_t c = 0; c < channels; c += together) {
    const T* plane[together];
    for (int i = 0; i < together; ++i) plane[i] = c + i < channels ? planes + (c + i) * run_pixels : zeros;
    char* unit = out + c * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t p = 0; p < pixels; ++p, unit += pixel_bytes) {
      T codes[together];
      for (int i = 0; i < together; ++i) codes[i] = plane[i][p];
      std::memcpy(unit, codes, 4);
    }
  }
}

struct Image {
  const char* codes;  ///< [batch][in_h][in_w] pixel rows, each with the codes of its groups one after another
  const char* zero;   ///< a group's codes of what lies outside
  std::int64_t group_bytes, pixel_bytes;
};

bool encode_nhwc(const Tile& tile, const Width& width, const Conv2dShape& s, const Conv2dInput& x, std::int64_t begin,
                 std::int64_t end, std::int64_t group_bytes, char* codes) {
  bool finite = true;
  const std::int64_t channels = s.group_in(), row = row_bytes(x.dtype, channels);
  const std::int64_t written = code_size(tile.code, channels);
  for (std::int64_t p = begin * s.groups; p < end * s.groups; ++p) {
    char* out = codes + p * group_bytes;
    const float* bias = x.bias == nullptr ? nullptr : x.bias + p % s.groups * channels;
    finite &= tile.encode({static_cast<const char*>(x.data) + p * row, x.dtype, channels, bias, 1, x.step, width.lo,
                           width.hi, tile.code, out});
    std::memset(out + written, 0, static_cast<std::size_t>(group_bytes - written));
  }
  return finite;
}

/// Signs of up to run_pixels neighbours of one group's planes, [channels][in_h][in_w] from `x` on, to pixel rows.
bool encode_sign_planes(const Tile& tile, const Conv2dInput& x, const char* from, const float* bias,
                        std::int64_t channels, std::int64_t plane, std::int64_t count, std::int64_t pixel_bytes,
                        std::uint32_t* words, char* out) {
  const bool finite = tile.sign_planes({from, x.dtype, channels, count, plane, bias, words, run_pixels});
  for (std::int64_t u = 0; u < (channels + 31) / 32; ++u)
    for (std::int64_t p = 0; p < count; ++p) std::memcpy(out + p * pixel_bytes + 4 * u, words + u * run_pixels + p, 4);
  return finite;
}

bool encode_nchw(const Tile& tile, const Width& width, const Conv2dShape& s, const Conv2dInput& x, std::int64_t begin,
                 std::int64_t end, std::int64_t group_bytes, char* codes) {
  bool finite = true;
  const std::int64_t plane = s.in_h * s.in_w, channels = s.group_in(), pixel_bytes = s.groups * group_bytes;
  const std::int64_t code_width = code_size(tile.code, 1);
  const std::int64_t plane_bytes = run_pixels * code_width;
  std::vector<std::uint32_t> planes(static_cast<std::size_t>(std::max(channels * plane_bytes / 4, 2 * run_pixels)));
  char* bytes = reinterpret_cast<char*>(planes.data());
  for (std::int64_t p = begin; p < end;) {
    const std::int64_t image = p / plane, offset = p % plane;
    const std::int64_t count = std::min({run_pixels, end - p, plane - offset});
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const std::int64_t first = g * channels;
      const char* from =
          static_cast<const char*>(x.data) + row_bytes(x.dtype, (image * s.in_c + first) * plane + offset);
      const float* bias = x.bias == nullptr ? nullptr : x.bias + first;
      char* out = codes + p * pixel_bytes + g * group_bytes;
      if (tile.code == Code::bits) {
        finite &= encode_sign_planes(tile, x, from, bias, channels, plane, count, pixel_bytes, planes.data(), out);
        continue;
      }
      if (tile.code_planes != nullptr) {
        finite &= tile.code_planes({from, x.dtype, channels, count, plane, bias, x.step, width.lo, width.hi, tile.code,
                                    out, pixel_bytes, group_bytes});
        continue;
      }
      for (std::int64_t c = 0; c < channels; ++c)
        finite &=
            tile.encode({from + row_bytes(x.dtype, c * plane), x.dtype, count, bias == nullptr ? nullptr : bias + c, 0,
                         x.step, width.lo, width.hi, tile.code, bytes + c * plane_bytes});
      if (code_width == 1)
        transpose_codes(reinterpret_cast<const std::uint8_t*>(bytes), channels, count, pixel_bytes, out);
      else
        transpose_codes(reinterpret_cast<const std::uint16_t*>(bytes), channels, count, pixel_bytes, out);
      const std::int64_t written = (channels * code_width + 3) / 4 * 4;
      for (std::int64_t i = 0; i < count && written < group_bytes; ++i)
        std::memset(out + i * pixel_bytes + written, 0, static_cast<std::size_t>(group_bytes - written));
    }
    p += count;
  }
  return finite;
}

/// rows[tile][tap][r]: where the window of output pixel first + tile * mr + r finds the codes of a group.
void window_pointers(const Conv2dShape& s, const Image& image, std::int64_t batch, std::int64_t group,
                     std::int64_t first, std::int64_t pixels, int mr, const void** rows) {
  const std::int64_t taps = s.taps(), out_w = s.out_w();
  for (std::int64_t p = 0; p < pixels; ++p) {
    const std::int64_t top = (first + p) / out_w * s.stride_h - s.pad_h;
    const std::int64_t left = (first + p) % out_w * s.stride_w - s.pad_w;
    const void** row = rows + p / mr * taps * mr + p % mr;
    for (std::int64_t i = 0; i < s.kernel_h; ++i) {
      const std::int64_t y = top + i * s.dil_h;
      for (std::int64_t j = 0; j < s.kernel_w; ++j, row += mr) {
        const std::int64_t x = left + j * s.dil_w;
        const bool inside = y >= 0 && y < s.in_h && x >= 0 && x < s.in_w;
        const std::int64_t pixel = (batch * s.in_h + y) * s.in_w + x;
        *row = inside ? image.codes + pixel * image.pixel_bytes + group * image.group_bytes : image.zero;
      }
    }
  }
}

/// Takes back the signs -1 that windows read outside the image: acc[pixel][c] += sums[tap][c] for every such tap.
void add_tap_sums(const void* const* rows, const void* zero, std::int64_t taps, std::int64_t pixels, int mr, int nr,
                  const std::int32_t* sums, std::int32_t* acc) {
  for (std::int64_t p = 0; p < pixels; ++p)
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      if (rows[(p / mr * taps + tap) * mr + p % mr] != zero) continue;
      for (int c = 0; c < nr; ++c) acc[p * nr + c] += sums[tap * nr + c];
    }
}

}  // namespace

PanelLayout conv2d_layout(const Tile& tile, const Conv2dShape& s) {
  return {tile, s.group_out(), s.group_in(), s.taps(), tile.code == Code::bits && s.pad_code == 0};
}

void prepack_conv2d(const Tile& tile, const Width& width, const void* weight, const Conv2dShape& s, void* packed,
                    const Parallel& parallel) {
  const PanelLayout layout = conv2d_layout(tile, s);
  const std::int64_t group_rows = s.group_out() * row_bytes(width.code, s.depth());
  for (std::int64_t g = 0; g < s.groups; ++g)
    pack_panels(tile, width, static_cast<const char*>(weight) + g * group_rows, s.group_out(), s.group_in(), s.taps(),
                layout.sums_offset != 0, static_cast<char*>(packed) + g * static_cast<std::int64_t>(layout.bytes()),
                parallel);
}

Status run_conv2d(const Tile& tile, const Width& width, const Conv2dShape& s, const Conv2dInput& x, const void* packed,
                  const Conv2dOutput& y, const Parallel& parallel) {
  const Status checked = check_conv2d(s, x, y, width.code, width.max_k);
  if (checked != Status::ok) return checked;
  const std::int64_t plane = s.out_h() * s.out_w();
  if (s.batch == 0 || s.out_c == 0 || plane == 0) return Status::ok;
  const PanelLayout layout = conv2d_layout(tile, s);
  const std::int64_t in_pixels = s.batch * s.in_h * s.in_w, pixel_bytes = s.groups * layout.code_bytes;
  char* buffer =
      static_cast<char*>(workspace(static_cast<std::size_t>(layout.code_bytes + in_pixels * pixel_bytes + 64)));
  if (buffer == nullptr) return Status::out_of_memory;
  char* codes = buffer + layout.code_bytes;
  fill_zero_pixel(tile.code, layout.code_bytes, buffer);
  const Image image = {codes, buffer, layout.code_bytes, pixel_bytes};

  std::atomic<bool> finite{true};
  const auto encode = x.layout == ImageLayout::nhwc ? encode_nhwc : encode_nchw;
  const std::int64_t encode_grain = std::max<std::int64_t>(run_pixels, 32768 / std::max<std::int64_t>(1, s.in_c));
  parallel_for(parallel, in_pixels, encode_grain, [&](std::int64_t begin, std::int64_t end) {
    if (!encode(tile, width, s, x, begin, end, layout.code_bytes, codes))
      finite.store(false, std::memory_order_relaxed);
  });
  if (!finite.load()) return Status::not_finite;

  const std::int64_t block_pixels = std::int64_t{tile.mr} * tiles_a_block;
  const std::int64_t blocks = (plane + block_pixels - 1) / block_pixels;
  const std::int64_t group_panels = s.groups * layout.panels;
  const std::int64_t item_work = std::min(plane, block_pixels) * tile.nr * std::max<std::int64_t>(1, s.depth());
  const std::int64_t grain = std::max<std::int64_t>(1, width.task_work / item_work);
  const std::int64_t element = row_bytes(y.dtype, 1);
  // Written by the tile itself.
  const bool direct = y.dtype == Dtype::f32 && y.layout == ImageLayout::nhwc && layout.sums_offset == 0;
  parallel_for(parallel, s.batch * blocks * group_panels, grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::int32_t acc[max_block];
    std::int32_t column_run[64];
    std::vector<const void*> rows(static_cast<std::size_t>(block_pixels * s.taps()));
    std::int64_t known = -1;
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t block = item / group_panels, group = item % group_panels / layout.panels;
      const std::int64_t batch = block / blocks, first = block % blocks * block_pixels;
      const std::int64_t pixels = std::min(block_pixels, plane - first);
      if (item / layout.panels != known) window_pointers(s, image, batch, group, first, pixels, tile.mr, rows.data());
      known = item / layout.panels;
      const char* panel = static_cast<const char*>(packed) + item % group_panels * layout.panel_bytes;
      const std::int64_t column = item % layout.panels * tile.nr, channel = group * s.group_out() + column;
      const int columns = static_cast<int>(std::min<std::int64_t>(tile.nr, s.group_out() - column));
      char* out = static_cast<char*>(y.data);
      if (y.layout == ImageLayout::nhwc)
        out += ((batch * plane + first) * s.out_c + channel) * element;
      else
        out += ((batch * s.out_c + channel) * plane + first) * element;
      for (std::int64_t done = 0; done < pixels; done += tile.mr)
        tile.run({rows.data() + done * s.taps(), s.taps(), layout.units,
                  static_cast<int>(std::min<std::int64_t>(tile.mr, pixels - done)), columns,
                  reinterpret_cast<const std::int32_t*>(panel), panel + tile.nr * 4, acc + done * tile.nr,
                  direct ? reinterpret_cast<float*>(out) + done * s.out_c : nullptr, s.out_c, y.scale});
      if (direct) continue;
      if (layout.sums_offset != 0)
        add_tap_sums(rows.data(), image.zero, s.taps(), pixels, tile.mr, tile.nr,
                     reinterpret_cast<const std::int32_t*>(panel + layout.sums_offset), acc);
      if (y.layout == ImageLayout::nhwc) {
        for (std::int64_t i = 0; i < pixels; ++i)
          tile.store({acc + i * tile.nr, columns, y.scale, y.dtype, out + i * s.out_c * element});
      } else if (tile.store_planes != nullptr) {
        tile.store_planes({acc, tile.nr, pixels, columns, y.scale, y.dtype, out, plane});
      } else {
        for (int c = 0; c < columns; ++c) {
          for (std::int64_t i = 0; i < pixels; ++i) column_run[i] = acc[i * tile.nr + c];
          tile.store({column_run, pixels, y.scale, y.dtype, out + c * plane * element});
        }
      }
    }
  });
  return Status::ok;
}

}  // namespace bie::kernels::cpu
