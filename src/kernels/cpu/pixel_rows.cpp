#include "kernels/cpu/pixel_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace bie::kernels::cpu {
namespace {

constexpr std::int64_t run_pixels = 64;     // pixels quantised at once from an NCHW plane
constexpr std::int64_t least_biases = 512;  // of pixels quantised at once from an NHWC row, about

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

/// Codes as they are to bytes that stand for them. True: all are finite.
bool shift_codes(const char* from, std::int64_t count, int zero, char* to) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<char>(static_cast<unsigned char>(from[i]) + static_cast<unsigned>(zero));
  return true;
}

/// What the encoders share: pixels of image row `row`, which counts batches and rows, to `out`.
struct RowEncoder : ImageRows {
  std::int64_t bias_pixels;          ///< whose biases stand side by side, so that short pixels are quantised together
  const std::vector<float>& biases;  ///< [bias_pixels][in_c], where there are any

  RowEncoder(const ImageRows& rows, std::vector<float>& memory)
      : ImageRows(rows), bias_pixels(1 + least_biases / std::max<std::int64_t>(1, rows.s.in_c)), biases(memory) {
    memory.clear();
    if (x.bias == nullptr || x.layout != ImageLayout::nhwc) return;
    for (std::int64_t p = 0; p < bias_pixels; ++p) memory.insert(memory.end(), x.bias, x.bias + s.in_c);
  }

  bool nhwc(std::int64_t row, char* out) const {
    const std::int64_t channels = s.group_in(), bytes = row_bytes(x.dtype, channels);
    const char* from = static_cast<const char*>(x.data) + row * s.in_w * s.groups * bytes;
    const std::int64_t pixel = s.in_c * row_bytes(x.dtype, 1);
    const bool has_bias = x.dtype != Dtype::s8 && x.bias != nullptr;
    if (tile.code != Code::bits && s.groups * code_size(tile.code, channels) == image.pixel_bytes) {
      if (x.dtype == Dtype::s8 && code_size(tile.code, 1) == 1 && tile.code != Code::u8_b1)
        return shift_codes(from, s.in_w * s.in_c, zero_code(tile.code), out);
      const auto encode = [&](const char* codes_of, std::int64_t pixels, std::int64_t rows, char* to) {
        return tile.encode({codes_of, x.dtype, pixels * s.in_c, has_bias ? biases.data() : nullptr, 1, x.step, width.lo,
                            width.hi, tile.code, to, pixels * image.pixel_bytes, rows, pixels * pixel,
                            pixels * image.pixel_bytes});
      };
      const std::int64_t at_once = has_bias ? std::min(bias_pixels, s.in_w) : s.in_w;
      const std::int64_t runs = s.in_w / at_once, done = runs * at_once;
      const bool whole = encode(from, at_once, runs, out);
      if (done == s.in_w) return whole;
      return encode(from + done * pixel, s.in_w - done, 1, out + done * image.pixel_bytes) && whole;
    }
    bool finite = true;
    for (std::int64_t g = 0; g < s.groups; ++g)
      finite &=
          tile.encode({from + g * bytes, x.dtype, channels, group_bias(g), 1, x.step, width.lo, width.hi, tile.code,
                       out + g * image.group_bytes, image.group_bytes, s.in_w, s.groups * bytes, image.pixel_bytes});
    return finite;
  }

  /// Rows `first` to `last` - 1 of one image.
  bool nchw(std::int64_t first, std::int64_t last, char* out, std::vector<std::uint32_t>& scratch) const {
    const std::int64_t plane = s.in_h * s.in_w, channels = s.group_in();
    const std::int64_t begin = first * s.in_w, end = last * s.in_w, gap = 2 * s.pad_w * image.pixel_bytes;
    const std::int64_t code_width = code_size(tile.code, 1), plane_bytes = run_pixels * code_width;
    scratch.resize(static_cast<std::size_t>(std::max(channels * plane_bytes / 4, 2 * run_pixels)));
    bool finite = true;
    for (std::int64_t p = begin; p < end;) {
      const std::int64_t offset = p % plane, column = p % s.in_w;
      // The encoder of planes skips the padding between rows, the others stop before it.
      const std::int64_t count = tile.code_planes != nullptr ? end - p : std::min(run_pixels, s.in_w - column);
      for (std::int64_t g = 0; g < s.groups; ++g) {
        const std::int64_t from = row_bytes(x.dtype, (p / plane * s.in_c + g * channels) * plane + offset);
        const char* planes = static_cast<const char*>(x.data) + from;
        char* to = out + g * image.group_bytes;
        if (tile.code_planes != nullptr)
          finite &=
              tile.code_planes({planes, x.dtype, channels, count, plane, group_bias(g), x.step, width.lo, width.hi,
                                tile.code, to, image.pixel_bytes, image.group_bytes, column, s.in_w, gap});
        else if (tile.code == Code::bits)
          finite &= encode_signs(planes, group_bias(g), count, scratch, to);
        else
          finite &= encode_codes(planes, group_bias(g), count, scratch, to);
      }
      p += count;
      out += count * image.pixel_bytes + (p % s.in_w == 0 ? gap : 0);
    }
    return finite;
  }

 private:
  const float* group_bias(std::int64_t group) const {
    return x.bias == nullptr ? nullptr : x.bias + group * s.group_in();
  }

  bool encode_signs(const char* planes, const float* bias, std::int64_t count, std::vector<std::uint32_t>& words,
                    char* out) const {
    const std::int64_t channels = s.group_in();
    const bool finite =
        tile.sign_planes({planes, x.dtype, channels, count, s.in_h * s.in_w, bias, words.data(), run_pixels});
    for (std::int64_t u = 0; u < (channels + 31) / 32; ++u)
      for (std::int64_t p = 0; p < count; ++p)
        std::memcpy(out + p * image.pixel_bytes + 4 * u, words.data() + u * run_pixels + p, 4);
    return finite;
  }

  bool encode_codes(const char* planes, const float* bias, std::int64_t count, std::vector<std::uint32_t>& scratch,
                    char* out) const {
    const std::int64_t channels = s.group_in(), plane = s.in_h * s.in_w;
    const std::int64_t code_width = code_size(tile.code, 1), plane_bytes = run_pixels * code_width;
    char* bytes = reinterpret_cast<char*>(scratch.data());
    bool finite = true;
    for (std::int64_t c = 0; c < channels; ++c)
      finite &=
          tile.encode({planes + row_bytes(x.dtype, c * plane), x.dtype, count, bias == nullptr ? nullptr : bias + c, 0,
                       x.step, width.lo, width.hi, tile.code, bytes + c * plane_bytes, count * code_width});
    if (code_width == 1)
      transpose_codes(reinterpret_cast<const std::uint8_t*>(bytes), channels, count, image.pixel_bytes, out);
    else if (code_width == 2)
      transpose_codes(reinterpret_cast<const std::uint16_t*>(bytes), channels, count, image.pixel_bytes, out);
    else
      transpose_codes(reinterpret_cast<const std::uint32_t*>(bytes), channels, count, image.pixel_bytes, out);
    const std::int64_t written = (channels * code_width + 3) / 4 * 4;
    for (std::int64_t i = 0; i < count && written < image.group_bytes; ++i)
      std::memset(out + i * image.pixel_bytes + written, 0, static_cast<std::size_t>(image.group_bytes - written));
    return finite;
  }
};

}  // namespace

bool encode_image(const ImageRows& all, std::int64_t begin, std::int64_t end, char* codes) {
  thread_local std::vector<float> biases;  // kept, as a workspace is
  const RowEncoder encoder(all, biases);
  const Conv2dShape& s = encoder.s;
  const Image& image = encoder.image;
  const auto fill = [&all](char* at, std::int64_t bytes) {
    const std::uint32_t byte = all.outside & 255;
    if (all.outside == byte * 0x01010101u)
      std::memset(at, static_cast<int>(byte), static_cast<std::size_t>(bytes));
    else
      for (std::int64_t i = 0; i < bytes; i += 4) std::memcpy(at + i, &all.outside, 4);
  };
  const std::int64_t left = s.pad_w * image.pixel_bytes;
  thread_local std::vector<std::uint32_t> scratch;  // kept, as a workspace is
  bool finite = true;
  for (std::int64_t row = begin; row < end;) {
    char* out = codes + row * image.row_bytes();
    const std::int64_t y = row % image.height - s.pad_h;
    if (y < 0 || y >= s.in_h) {
      fill(out, image.row_bytes());
      ++row;
      continue;
    }
    const std::int64_t rows = encoder.x.layout == ImageLayout::nhwc ? 1 : std::min(end - row, s.in_h - y);
    for (std::int64_t r = 0; r < rows; ++r) {
      fill(out + r * image.row_bytes(), left);
      fill(out + (r + 1) * image.row_bytes() - left, left);
    }
    const std::int64_t from = row / image.height * s.in_h + y;
    finite &= encoder.x.layout == ImageLayout::nhwc ? encoder.nhwc(from, out + left)
                                                    : encoder.nchw(from, from + rows, out + left, scratch);
    row += rows;
  }
  return finite;
}

}  // namespace bie::kernels::cpu
