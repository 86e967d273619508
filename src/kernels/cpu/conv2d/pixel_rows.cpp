#include "kernels/cpu/conv2d/pixel_rows.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace bie::kernels::cpu {
namespace {

constexpr std::int64_t run_pixels = 64;       // pixels quantised at once from an NCHW plane
constexpr std::int64_t picked_bytes = 65536;  // picked from NCHW planes at once, about
constexpr std::int64_t least_biases = 512;    // of pixels quantised at once from an NHWC row, about

/// Transposes NCHW codes of `pixels` neighbours to pixel rows, four bytes (one activation unit) at a time. T is one
/// code; channels beyond the last are read from `zeros`.
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

/// Converts int8 codes to the bytes that stand for them. Returns true: all codes are finite.
bool shift_codes(const char* from, std::int64_t count, int zero, char* to) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<char>(static_cast<unsigned char>(from[i]) + static_cast<unsigned>(zero));
  return true;
}

/// Every step-th element of a row of a plane, T being as wide as one.
template <class T>
void pick_row(const char* from, std::int64_t step, std::int64_t count, char* to) {
  if (step == 2)  // a loop of its own, with vectors
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * sizeof(T), from + 2 * i * sizeof(T), sizeof(T));
  else
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * sizeof(T), from + i * step * sizeof(T), sizeof(T));
}

/// Neighbouring rows of the planes of an image, all of whose pixels are wanted.
struct PlaneRows {
  const char* first;          ///< of channel 0
  std::int64_t plane, width;  ///< elements from one channel to the next, and of a row
  std::int64_t count;         ///< of rows
};

/// State shared by the encoders. `out` points to the first pixel behind the left padding.
struct RowEncoder : ImageRows {
  std::int64_t bias_pixels;          ///< whose biases stand side by side, so that short pixels are quantised together
  const std::vector<float>& biases;  ///< [bias_pixels][in_c], where there are any

  RowEncoder(const ImageRows& rows, std::vector<float>& memory)
      : ImageRows(rows), bias_pixels(1 + least_biases / std::max<std::int64_t>(1, rows.s.in_c)), biases(memory) {
    const bool signs = tile.code == Code::bits;
    if (signs) bias_pixels = (bias_pixels + 31) / 32 * 32;  // whose signs fill words
    memory.clear();
    if (!has_bias() || x.layout != ImageLayout::nhwc || (signs && s.in_c > most_joined_channels)) return;
    for (std::int64_t p = 0; p < bias_pixels; ++p) memory.insert(memory.end(), x.bias, x.bias + s.in_c);
  }

  bool has_bias() const { return x.dtype != Dtype::s8 && x.bias != nullptr; }

  /// `count` pixels, every image.step_w-th one from `from` on.
  bool nhwc(const char* from, std::int64_t count, char* out) const {
    const std::int64_t channels = s.group_in(), bytes = row_bytes(x.dtype, channels);
    if (image.step_w == 1 && tile.code != Code::bits && s.groups * code_size(tile.code, channels) == image.pixel_bytes)
      return dense(from, count, out);
    bool finite = true;
    for (std::int64_t g = 0; g < s.groups; ++g)
      finite &= tile.encode({from + g * bytes, x.dtype, channels, group_bias(g), 1, x.step, width.lo, width.hi,
                             tile.code, out + g * image.group_bytes, image.group_bytes, count,
                             image.step_w * s.groups * bytes, image.pixel_bytes});
    return finite;
  }

  /// Neighbouring pixels without gaps between their codes.
  bool dense(const char* from, std::int64_t count, char* out) const {
    if (x.dtype == Dtype::s8 && code_size(tile.code, 1) == 1 && tile.code != Code::u8_b1 && tile.code != Code::bits)
      return shift_codes(from, count * s.in_c, zero_code(tile.code), out);
    const std::int64_t pixel = s.in_c * row_bytes(x.dtype, 1);
    const auto encode = [&](const char* codes_of, std::int64_t pixels, std::int64_t rows, char* to) {
      const std::int64_t codes = pixels * s.in_c;
      const std::int64_t bytes = tile.code == Code::bits ? (codes + 31) / 32 * 4 : code_size(tile.code, codes);
      return tile.encode({codes_of, x.dtype, pixels * s.in_c, has_bias() ? biases.data() : nullptr, 1, x.step, width.lo,
                          width.hi, tile.code, to, bytes, rows, pixels * pixel, bytes});
    };
    if (count == 0) return true;
    const std::int64_t at_once = has_bias() ? std::min(bias_pixels, count) : count;
    const std::int64_t runs = count / at_once, done = runs * at_once;
    const bool whole = encode(from, at_once, runs, out);
    if (done == count) return whole;
    return encode(from + done * pixel, count - done, 1, out + code_size(tile.code, done * s.in_c)) && whole;
  }

  bool nchw(PlaneRows rows, char* out, std::vector<std::uint32_t>& scratch) const {
    const std::int64_t channels = s.group_in(), pixels = rows.count * rows.width;
    const std::int64_t gap = image.row_bytes() - rows.width * image.pixel_bytes;
    if (gap == 0) rows.width = pixels;  // one row
    const std::int64_t code_width = code_size(tile.code, 1), plane_bytes = run_pixels * code_width;
    scratch.resize(static_cast<std::size_t>(std::max(channels * plane_bytes / 4, 2 * run_pixels)));
    bool finite = true;
    for (std::int64_t p = 0; p < pixels;) {
      const std::int64_t column = p % rows.width;
      // The encoder of planes skips the padding between rows, the others stop before it.
      const std::int64_t count = tile.code_planes != nullptr ? pixels - p : std::min(run_pixels, rows.width - column);
      for (std::int64_t g = 0; g < s.groups; ++g) {
        const char* planes = rows.first + row_bytes(x.dtype, g * channels * rows.plane + p);
        char* to = out + g * image.group_bytes;
        if (tile.code_planes != nullptr)
          finite &=
              tile.code_planes({planes, x.dtype, channels, count, rows.plane, group_bias(g), x.step, width.lo, width.hi,
                                tile.code, to, image.pixel_bytes, image.group_bytes, column, rows.width, gap});
        else if (tile.code == Code::bits)
          finite &= encode_signs(planes, rows.plane, group_bias(g), count, scratch, to);
        else
          finite &= encode_codes(planes, rows.plane, group_bias(g), count, scratch, to);
      }
      p += count;
      out += count * image.pixel_bytes + (p % rows.width == 0 ? gap : 0);
    }
    return finite;
  }

 private:
  const float* group_bias(std::int64_t group) const {
    return x.bias == nullptr ? nullptr : x.bias + group * s.group_in();
  }

  bool encode_signs(const char* planes, std::int64_t plane, const float* bias, std::int64_t count,
                    std::vector<std::uint32_t>& words, char* out) const {
    const std::int64_t channels = s.group_in();
    const bool finite = tile.sign_planes({planes, x.dtype, channels, count, plane, bias, words.data(), run_pixels});
    for (std::int64_t u = 0; u < (channels + 31) / 32; ++u)
      for (std::int64_t p = 0; p < count; ++p)
        std::memcpy(out + p * image.pixel_bytes + 4 * u, words.data() + u * run_pixels + p, 4);
    return finite;
  }

  bool encode_codes(const char* planes, std::int64_t plane, const float* bias, std::int64_t count,
                    std::vector<std::uint32_t>& scratch, char* out) const {
    const std::int64_t channels = s.group_in();
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

void fill(const ImageRows& rows, char* at, std::int64_t bytes) {
  const std::uint32_t byte = rows.outside & 255;
  if (rows.outside == byte * 0x01010101u)
    std::memset(at, static_cast<int>(byte), static_cast<std::size_t>(bytes));
  else
    for (std::int64_t i = 0; i < bytes; i += 4) std::memcpy(at + i, &rows.outside, 4);
}

/// Where row `y` of image `n` begins, in channel 0 of planes.
const char* row_of(const ImageRows& a, std::int64_t n, std::int64_t y) {
  const bool nhwc = a.x.layout == ImageLayout::nhwc;
  const std::int64_t pixels = nhwc ? n * a.s.in_h + y : n * a.s.in_c * a.s.in_h + y;
  return static_cast<const char*>(a.x.data) + row_bytes(a.x.dtype, pixels * a.s.in_w * (nhwc ? a.s.in_c : 1));
}

/// Rows of pixels that are quantised without gaps and then joined. Places in them are counted in bits.
class JoinedRows {
 public:
  JoinedRows(const ImageRows& rows, std::vector<float>& biases)
      : all_(rows),
        alone_{1, rows.s.in_c, 1, rows.s.in_w, 1, 1, 1},
        pixel_bits_(rows.s.in_c * code_size(rows.tile.code, 8)),
        pixels_(alone_, alone_, (pixel_bits_ + 31) / 32 * 4),
        encoder_({rows.tile, rows.width, alone_, rows.x, pixels_, rows.outside}, biases) {}

  /// `from` is the first pixel of the row.
  bool encode(const char* from, char* out) const {
    thread_local std::vector<char> row;  // kept, as a workspace is
    const std::int64_t padding = all_.image.left * pixel_bits_, begin = (padding + 31) / 32 * 32;
    const std::int64_t end = begin + alone_.in_w * pixel_bits_;
    row.resize(static_cast<std::size_t>((end + padding) / 8 + all_.image.pixel_bytes + 2 * slack));
    char* const at = row.data();
    const auto fill_from = [&](std::int64_t bit) {
      fill(all_, at + bit / 8, (static_cast<std::int64_t>(row.size()) - bit / 8) / 4 * 4);
    };
    fill_from(0);
    const bool finite = quantise(from, at + begin / 8);
    if (all_.tile.code == Code::bits) {
      join_signs(at, begin - padding, out);
    } else {
      fill_from(end);  // over what was written behind the last pixel
      join_codes(at + (begin - padding) / 8, out);
    }
    return finite;
  }

 private:
  static constexpr std::int64_t slack = 16;  // bytes that are written or read behind the last pixel

  bool quantise(const char* from, char* out) const {
    if (all_.x.layout == ImageLayout::nhwc) return encoder_.dense(from, alone_.in_w, out);
    thread_local std::vector<char> aligned;  // kept, as a workspace is; so below
    thread_local std::vector<std::uint32_t> scratch;
    aligned.resize(static_cast<std::size_t>(pixels_.row_bytes() + 8 * pixels_.pixel_bytes + slack));
    const bool finite = encoder_.nchw({from, all_.s.in_h * all_.s.in_w, alone_.in_w, 1}, aligned.data(), scratch);
    if (all_.tile.code == Code::bits)
      close_up_signs(aligned, out);
    else
      close_up_codes(aligned.data(), out);
    return finite;
  }

  /// Words of most_joined_channels signs or less without gaps, eight pixels and in_c bytes at a time.
  void close_up_signs(std::vector<char>& words, char* out) const {
    const int bits = static_cast<int>(pixel_bits_);
    std::fill(words.begin() + pixels_.row_bytes(), words.end(), 0);
    for (std::int64_t p = 0; p < alone_.in_w; p += 8, out += bits) {
      std::uint32_t word[8];
      std::memcpy(word, words.data() + 4 * p, sizeof word);
      std::uint64_t four[2] = {0, 0};
      for (int i = 0; i < 8; ++i) four[i / 4] |= std::uint64_t{word[i]} << i % 4 * bits;
      const std::uint64_t both[2] = {four[0] | four[1] << (4 * bits - 1) << 1, four[1] >> (64 - 4 * bits)};
      std::memcpy(out, both, sizeof both);
    }
  }

  void close_up_codes(const char* from, char* out) const {
    const std::int64_t bytes = pixel_bits_ / 8;
    for (std::int64_t p = 0; p < alone_.in_w; ++p, from += pixels_.pixel_bytes, out += bytes)
      for (std::int64_t at = 0; at < bytes; at += 4) std::memcpy(out + at, from + at, 4);
  }

  void join_codes(const char* window, char* out) const {
    const Image& image = all_.image;
    const std::int64_t pixel = pixel_bits_ / 8, step = image.step_w * pixel, bytes = image.pixel_bytes;
    for (std::int64_t p = 0; p < image.width; ++p, window += step, out += bytes) {
      if (image.dil_w > 1) {
        std::memset(out, 0, static_cast<std::size_t>(bytes));
        for (std::int64_t j = 0; j < image.joined; ++j)
          std::memcpy(out + j * pixel, window + j * image.dil_w * pixel, static_cast<std::size_t>(pixel));
        continue;
      }
      std::int64_t at = 0;
      for (; at + 8 <= bytes; at += 8) std::memcpy(out + at, window + at, 8);
      if (at < bytes) std::memcpy(out + at, window + at, 4);
    }
  }

  /// Bits of a unit that belong to no tap become 0.
  void join_signs(const char* row, std::int64_t window, char* out) const {
    const Image& image = all_.image;
    const std::int64_t step = image.step_w * pixel_bits_, used = image.joined * pixel_bits_;
    if (image.dil_w > 1) {
      std::memset(out, 0, static_cast<std::size_t>(image.row_bytes()));
      for (std::int64_t j = 0; j < image.joined; ++j)
        for (std::int64_t p = 0; p < image.width; ++p) {
          const std::int64_t bit = window + p * step + j * image.dil_w * pixel_bits_;
          for (std::int64_t c = 0, to = j * pixel_bits_; c < pixel_bits_; ++c, ++to) {
            const int sign = row[(bit + c) / 8] >> (bit + c) % 8 & 1;
            char& byte = out[p * image.pixel_bytes + to / 8];
            byte = static_cast<char>(byte | sign << to % 8);
          }
        }
      return;
    }
    for (std::int64_t unit = 0; unit < image.pixel_bytes; unit += 4) {
      const std::int64_t left = used - 8 * unit;
      const std::uint32_t mask = left >= 32 ? ~0u : left <= 0 ? 0 : (1u << left) - 1;
      std::int64_t bit = window + 8 * unit;
      for (std::int64_t p = 0; p < image.width; ++p, bit += step) {
        std::uint64_t bits;
        std::memcpy(&bits, row + bit / 8, 8);
        const std::uint32_t word = static_cast<std::uint32_t>(bits >> bit % 8) & mask;
        std::memcpy(out + p * image.pixel_bytes + unit, &word, 4);
      }
    }
  }

  const ImageRows& all_;
  const Conv2dShape alone_;  ///< of a row
  const std::int64_t pixel_bits_;
  const Image pixels_;  ///< of which each begins with a unit of its own
  const RowEncoder encoder_;
};

}  // namespace

Conv2dShape without_skipped_lines(const Conv2dShape& s) {
  Conv2dShape read = s;
  if (skips(s.kernel_h, s.stride_h)) {
    read.in_h = s.out_h();
    read.stride_h = 1;
    read.pad_h = 0;
  }
  if (skips(s.kernel_w, s.stride_w)) {
    read.in_w = s.out_w();
    read.stride_w = 1;
    read.pad_w = 0;
  }
  return read;
}

Conv2dShape with_joined_rows(const Conv2dShape& s) {
  Conv2dShape joined = s;
  joined.in_c = s.kernel_w * s.in_c;
  joined.in_w = s.out_w();
  joined.kernel_w = joined.stride_w = joined.dil_w = 1;
  joined.pad_w = 0;
  return joined;
}

void pick(const PickedPlanes& p, char* out) {
  const auto& of = p.element == 4   ? pick_row<std::uint32_t>
                   : p.element == 2 ? pick_row<std::uint16_t>
                                    : pick_row<std::uint8_t>;
  for (std::int64_t c = 0; c < p.channels; ++c)
    for (std::int64_t r = 0; r < p.rows; ++r, out += p.columns * p.element)
      of(p.from + (c * p.plane + r * p.step_h * p.width) * p.element, p.step_w, p.columns, out);
}

bool encode_image(const ImageRows& all, std::int64_t begin, std::int64_t end, char* codes) {
  thread_local std::vector<float> biases;  // kept, as a workspace is; so below
  thread_local std::vector<std::uint32_t> scratch;
  thread_local std::vector<char> picked;
  const Conv2dShape& s = all.s;
  const Image& image = all.image;
  const bool nhwc = all.x.layout == ImageLayout::nhwc, joined = image.joined > 1;
  const bool whole = image.step_h == 1 && image.step_w == 1;
  const std::int64_t pixel = row_bytes(all.x.dtype, 1);
  // Pixels of a row of codes: padding, those of the image from column `first` on, padding.
  const std::int64_t left = (image.left + image.step_w - 1) / image.step_w, first = left * image.step_w - image.left;
  const std::int64_t columns = first < s.in_w ? (s.in_w - 1 - first) / image.step_w + 1 : 0;
  const std::int64_t left_bytes = left * image.pixel_bytes, inside_end = left_bytes + columns * image.pixel_bytes;
  std::optional<RowEncoder> encoder;
  std::optional<JoinedRows> joiner;
  if (joined)
    joiner.emplace(all, biases);
  else
    encoder.emplace(all, biases);
  bool finite = true;
  for (std::int64_t row = begin, rows = 1; row < end; row += rows) {
    char* const out = codes + row * image.row_bytes();
    const std::int64_t n = row / image.height, y = row % image.height * image.step_h - image.top;
    rows = 1;
    if (y < 0 || y >= s.in_h) {
      fill(all, out, image.row_bytes());
      continue;
    }
    const char* from = row_of(all, n, y);
    if (joined) {
      finite &= joiner->encode(from, out);
      continue;
    }
    if (!nhwc) rows = std::min(end - row, (s.in_h - 1 - y) / image.step_h + 1);
    if (!nhwc && !whole) rows = std::min(rows, 1 + picked_bytes / std::max<std::int64_t>(1, s.in_c * columns * pixel));
    for (std::int64_t r = 0; r < rows; ++r) {
      fill(all, out + r * image.row_bytes(), left_bytes);
      fill(all, out + r * image.row_bytes() + inside_end, image.row_bytes() - inside_end);
    }
    if (columns == 0) continue;
    from += first * pixel * (nhwc ? s.in_c : 1);
    if (nhwc) {
      finite &= encoder->nhwc(from, columns, out + left_bytes);
      continue;
    }
    PlaneRows planes = {from, s.in_h * s.in_w, s.in_w, rows};
    if (!whole) {
      picked.resize(static_cast<std::size_t>(s.in_c * rows * columns * pixel));
      pick({from, planes.plane, s.in_w, pixel, s.in_c, rows, columns, image.step_h, image.step_w}, picked.data());
      planes = {picked.data(), rows * columns, columns, rows};
    }
    finite &= encoder->nchw(planes, out + left_bytes, scratch);
  }
  return finite;
}

}  // namespace bie::kernels::cpu
