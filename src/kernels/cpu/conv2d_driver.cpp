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
  const char* codes;  ///< [batch][in_h][in_w] pixel rows
  const char* zero;   ///< one pixel row of the code 0
  std::int64_t pixel_bytes;
};

bool encode_nhwc(const Tile& tile, const Width& width, const Conv2dShape& s, const Conv2dInput& x, std::int64_t begin,
                 std::int64_t end, std::int64_t pixel_bytes, char* codes) {
  bool finite = true;
  const std::int64_t row = row_bytes(x.dtype, s.in_c);
  const std::int64_t written = code_size(tile.code, s.in_c);
  for (std::int64_t p = begin; p < end; ++p) {
    char* out = codes + p * pixel_bytes;
    finite &= tile.encode({static_cast<const char*>(x.data) + p * row, x.dtype, s.in_c, x.bias, 1, x.step, width.lo,
                           width.hi, tile.code, out});
    std::memset(out + written, 0, static_cast<std::size_t>(pixel_bytes - written));
  }
  return finite;
}

bool encode_nchw(const Tile& tile, const Width& width, const Conv2dShape& s, const Conv2dInput& x, std::int64_t begin,
                 std::int64_t end, std::int64_t pixel_bytes, char* codes) {
  bool finite = true;
  const std::int64_t plane = s.in_h * s.in_w;
  const std::int64_t code_width = code_size(tile.code, 1);
  const std::int64_t plane_bytes = run_pixels * code_width;
  std::vector<char> planes(static_cast<std::size_t>(s.in_c * plane_bytes));
  for (std::int64_t p = begin; p < end;) {
    const std::int64_t image = p / plane, offset = p % plane;
    const std::int64_t count = std::min({run_pixels, end - p, plane - offset});
    for (std::int64_t c = 0; c < s.in_c; ++c)
      finite &=
          tile.encode({static_cast<const char*>(x.data) + row_bytes(x.dtype, (image * s.in_c + c) * plane + offset),
                       x.dtype, count, x.bias == nullptr ? nullptr : x.bias + c, 0, x.step, width.lo, width.hi,
                       tile.code, planes.data() + c * plane_bytes});
    char* out = codes + p * pixel_bytes;
    if (code_width == 1)
      transpose_codes(reinterpret_cast<const std::uint8_t*>(planes.data()), s.in_c, count, pixel_bytes, out);
    else
      transpose_codes(reinterpret_cast<const std::uint16_t*>(planes.data()), s.in_c, count, pixel_bytes, out);
    const std::int64_t written = (s.in_c * code_width + 3) / 4 * 4;
    for (std::int64_t i = 0; i < count && written < pixel_bytes; ++i)
      std::memset(out + i * pixel_bytes + written, 0, static_cast<std::size_t>(pixel_bytes - written));
    p += count;
  }
  return finite;
}

/// rows[tile][tap][r]: where the window of output pixel first + tile * mr + r finds its codes.
void window_pointers(const Conv2dShape& s, const Image& image, std::int64_t batch, std::int64_t first,
                     std::int64_t pixels, int mr, const void** rows) {
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
        *row = inside ? image.codes + ((batch * s.in_h + y) * s.in_w + x) * image.pixel_bytes : image.zero;
      }
    }
  }
}

}  // namespace

Status run_conv2d(const Tile& tile, const Width& width, const Conv2dShape& s, const Conv2dInput& x, const void* packed,
                  const Conv2dOutput& y, const Parallel& parallel) {
  const Status checked = check_conv2d(s, x, y, width.max_k);
  if (checked != Status::ok) return checked;
  const std::int64_t plane = s.out_h() * s.out_w();
  if (s.batch == 0 || s.out_c == 0 || plane == 0) return Status::ok;
  const PanelLayout layout(tile, s.out_c, s.in_c, s.taps());
  const std::int64_t in_pixels = s.batch * s.in_h * s.in_w;
  char* buffer = static_cast<char*>(workspace(static_cast<std::size_t>((in_pixels + 1) * layout.code_bytes + 64)));
  if (buffer == nullptr) return Status::out_of_memory;
  char* codes = buffer + layout.code_bytes;
  fill_zero_pixel(tile.code, layout.code_bytes, buffer);
  const Image image = {codes, buffer, layout.code_bytes};

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
  const std::int64_t item_work = std::min(plane, block_pixels) * tile.nr * std::max<std::int64_t>(1, s.depth());
  const std::int64_t grain = std::max<std::int64_t>(1, width.task_work / item_work);
  const std::int64_t element = row_bytes(y.dtype, 1);
  parallel_for(parallel, s.batch * blocks * layout.panels, grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::int32_t acc[max_block];
    std::int32_t column_run[64];
    std::vector<const void*> rows(static_cast<std::size_t>(block_pixels * s.taps()));
    std::int64_t known = -1;
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t block = item / layout.panels, p = item % layout.panels;
      const std::int64_t batch = block / blocks, first = block % blocks * block_pixels;
      const std::int64_t pixels = std::min(block_pixels, plane - first);
      if (block != known) window_pointers(s, image, batch, first, pixels, tile.mr, rows.data());
      known = block;
      const char* panel = static_cast<const char*>(packed) + p * layout.panel_bytes;
      const std::int64_t channel = p * tile.nr;
      const int columns = static_cast<int>(std::min<std::int64_t>(tile.nr, s.out_c - channel));
      for (std::int64_t done = 0; done < pixels; done += tile.mr)
        tile.run({rows.data() + done * s.taps(), s.taps(), layout.units,
                  static_cast<int>(std::min<std::int64_t>(tile.mr, pixels - done)), columns,
                  reinterpret_cast<const std::int32_t*>(panel), panel + tile.nr * 4, acc + done * tile.nr});
      char* out = static_cast<char*>(y.data);
      if (y.layout == ImageLayout::nhwc) {
        for (std::int64_t i = 0; i < pixels; ++i)
          tile.store({acc + i * tile.nr, columns, y.scale, y.dtype,
                      out + ((batch * plane + first + i) * s.out_c + channel) * element});
      } else {
        for (int c = 0; c < columns; ++c) {
          for (std::int64_t i = 0; i < pixels; ++i) column_run[i] = acc[i * tile.nr + c];
          tile.store({column_run, pixels, y.scale, y.dtype,
                      out + ((batch * s.out_c + channel + c) * plane + first) * element});
        }
      }
    }
  });
  return Status::ok;
}

}  // namespace bie::kernels::cpu
