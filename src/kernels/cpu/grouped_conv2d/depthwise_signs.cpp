#include "kernels/cpu/grouped_conv2d/depthwise_signs.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "bie/kernels/binary_conv2d.h"
#include "kernels/check.h"
#include "kernels/cpu/conv2d/pixel_rows.h"

namespace bie::kernels::cpu {
namespace {

constexpr std::int64_t vector_bytes = 64, most_taps = 57;  // whose number six bits hold

/// How channels lie in vectors: some whole pixels, or a part of one.
struct Parts {
  std::int64_t pixel_bytes, count, bytes, pixels;  ///< parts of a pixel, bytes of one, pixels of a vector

  explicit Parts(const Conv2dShape& s)
      : pixel_bytes(s.in_c / 8),
        count((pixel_bytes + vector_bytes - 1) / vector_bytes),
        bytes((pixel_bytes + count - 1) / count),
        pixels(count == 1 ? vector_bytes / pixel_bytes : 1) {}
};

/// Taps of a row or a column that lie inside the image, of output i.
int inside(std::int64_t i, std::int64_t taps, std::int64_t dil, std::int64_t pad, std::int64_t size) {
  int count = 0;
  for (std::int64_t t = 0; t < taps; ++t) {
    const std::int64_t at = i + t * dil - pad;
    count += at >= 0 && at < size ? 1 : 0;
  }
  return count;
}

/// Lines of pixels of bits, those of the padding beside them included. Pixels that a window moves by lie in phases.
struct Lines {
  std::int64_t phase_bytes, bytes;

  Lines(const Conv2dShape& s, const Parts& parts)
      : phase_bytes((s.in_w + 2 * s.pad_w + s.stride_w - 1) / s.stride_w * parts.pixel_bytes),
        bytes(phase_bytes * s.stride_w) {}
  /// Offset of a padded pixel in a line.
  std::int64_t place(const Conv2dShape& s, const Parts& parts, std::int64_t pixel) const {
    return pixel % s.stride_w * phase_bytes + pixel / s.stride_w * parts.pixel_bytes;
  }
};

}  // namespace

bool has_sign_pixels(const Conv2dShape& s) {
  constexpr std::int64_t fewest = 32;  // fewer channels take longer than as bytes
  return s.in_c >= fewest && s.groups == s.in_c && s.out_c == s.in_c && s.in_c % 8 == 0 && s.kernel_h > 0 &&
         s.kernel_w > 0 && s.taps() > 1 && s.taps() <= most_taps;
}

bool suits_sign_pixels(const Conv2dShape& s, const Conv2dInput& x, const Conv2dOutput& y) {
  return has_sign_pixels(s) && x.dtype == Dtype::f32 && x.layout == ImageLayout::nhwc && y.dtype == Dtype::f32 &&
         y.layout == ImageLayout::nhwc && y.tail == nullptr;
}

std::size_t sign_pixels_bytes(const Conv2dShape& s) {
  return static_cast<std::size_t>(Parts(s).count * s.taps() * vector_bytes);
}

void prepack_sign_pixels(const void* weight, const Conv2dShape& s, void* packed) {
  const Parts parts(s);
  const std::int64_t row = row_bytes(Dtype::bits, s.taps());
  std::memset(packed, 0, sign_pixels_bytes(s));
  for (std::int64_t part = 0; part < parts.count; ++part)
    for (std::int64_t tap = 0; tap < s.taps(); ++tap) {
      auto* const to = static_cast<std::uint8_t*>(packed) + (part * s.taps() + tap) * vector_bytes;
      for (std::int64_t pixel = 0; pixel < parts.pixels; ++pixel)
        for (std::int64_t i = 0; i < 8 * parts.bytes; ++i) {
          const std::int64_t c = 8 * part * parts.bytes + i;
          if (c >= s.in_c) break;
          const int bit = static_cast<const std::uint8_t*>(weight)[c * row + tap / 8] >> (tap % 8) & 1;
          std::uint8_t& byte = to[pixel * parts.bytes + i / 8];
          byte = static_cast<std::uint8_t>(byte | bit << i % 8);
        }
    }
}

Status run_sign_pixels(const SignPixels& loops, const Conv2dShape& s, const Conv2dInput& x, const void* packed,
                       const Conv2dOutput& y, const Parallel& parallel) {
  const Status checked = check_conv2d(s, x, y, Dtype::bits, max_k_b1);
  if (checked != Status::ok) return checked;
  const std::int64_t out_h = s.out_h(), out_w = s.out_w();
  if (s.batch == 0 || out_h * out_w == 0) return Status::ok;
  const Parts parts(s);
  const Lines lines(s, parts);
  // Behind the lines of the image stand a line of padding, and one for places beside which there is no padding.
  const std::int64_t all = s.batch * s.in_h, slack = 3 * vector_bytes, biases = x.bias == nullptr ? 0 : s.in_c + 15;
  if (static_cast<double>(all + 2) * static_cast<double>(lines.bytes) > most_image_bytes) return Status::out_of_memory;
  auto* const bias = static_cast<float*>(
      workspace(static_cast<std::size_t>(biases * std::int64_t{sizeof(float)} + (all + 2) * lines.bytes + slack)));
  if (bias == nullptr) return Status::out_of_memory;
  for (std::int64_t i = 0; i < biases; ++i) bias[i] = x.bias[i % s.in_c];
  const float* const pack_bias = x.bias == nullptr ? nullptr : bias;
  auto* const codes = reinterpret_cast<std::uint8_t*>(bias + biases);
  std::uint8_t *const outside = codes + all * lines.bytes, *const image = outside + lines.bytes;
  std::memset(outside, 0, static_cast<std::size_t>(2 * lines.bytes + slack));
  const bool zeros = s.pad_code == 0;
  for (std::int64_t pixel = 0; pixel < s.in_w; ++pixel)
    std::memset(image + lines.place(s, parts, s.pad_w + pixel), 0xff, static_cast<std::size_t>(parts.pixel_bytes));

  std::atomic<bool> finite{true};
  const std::int64_t line_elements = s.in_w * s.in_c;
  parallel_for(parallel, all, std::max<std::int64_t>(1, 32768 / (line_elements + 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t line = begin; line < end; ++line) {
                   std::uint8_t* const to = codes + line * lines.bytes;
                   std::memset(to, 0, static_cast<std::size_t>(lines.bytes));
                   // Phases begin with the first pixel of the padding.
                   std::int64_t done = 0;
                   for (std::int64_t lead = s.pad_w % s.stride_w; done < s.in_w && lead % s.stride_w != 0; ++lead) {
                     if (!loops.pack({static_cast<const float*>(x.data) + line * line_elements + done * s.in_c, 1,
                                      s.in_c, pack_bias, 1, 0, to + lines.place(s, parts, s.pad_w + done)}))
                       finite.store(false, std::memory_order_relaxed);
                     ++done;
                   }
                   if (!loops.pack({static_cast<const float*>(x.data) + line * line_elements + done * s.in_c,
                                    s.in_w - done, s.in_c, pack_bias, s.stride_w, lines.phase_bytes,
                                    to + lines.place(s, parts, s.pad_w + done)}))
                     finite.store(false, std::memory_order_relaxed);
                 }
               });
  if (!finite.load()) return Status::not_finite;

  const auto* const weights = static_cast<const std::uint8_t*>(packed);
  alignas(64) static constexpr std::uint8_t no_weights[vector_bytes] = {};
  const std::int64_t groups = (out_w + parts.pixels - 1) / parts.pixels;
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / (out_w * s.in_c + 1));
  parallel_for(parallel, s.batch * out_h, grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t planes[(count_planes * 2 + 1) * vector_bytes] = {};
    const std::uint8_t *taps[most_taps], *of_taps[most_taps], *in_taps[most_taps], *place[most_taps], *in[most_taps];
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t n = item / out_h, row = item % out_h;
      std::int64_t count = 0;
      int rows = 0;
      for (std::int64_t i = 0; i < s.kernel_h; ++i) {
        const std::int64_t line = row * s.stride_h - s.pad_h + i * s.dil_h;
        const bool is_line = line >= 0 && line < s.in_h;
        if (!is_line && zeros) continue;
        ++rows;
        for (std::int64_t j = 0; j < s.kernel_w; ++j, ++count) {
          const std::int64_t at = lines.place(s, parts, j * s.dil_w);
          place[count] = (is_line ? codes + (n * s.in_h + line) * lines.bytes : outside) + at;
          in[count] = image + at;
          of_taps[count] = weights + (i * s.kernel_w + j) * vector_bytes;
        }
      }
      const std::int64_t used = count;
      for (count = std::max<std::int64_t>(count, 1); count % 8 != 1; ++count) continue;
      for (std::int64_t t = used; t < count; ++t) of_taps[t] = no_weights, taps[t] = in_taps[t] = outside;
      for (std::int64_t part = 0; part < parts.count; ++part) {
        if (part > 0)
          for (std::int64_t t = 0; t < used; ++t) of_taps[t] += s.taps() * vector_bytes;
        for (std::int64_t group = 0, vectors; group < groups; group += vectors) {
          vectors = group + 1 < groups ? 2 : 1;
          const std::int64_t first = group * parts.pixels, last = std::min(out_w, first + vectors * parts.pixels);
          const std::int64_t from = first * parts.pixel_bytes + part * parts.bytes;
          const bool borders = zeros && (first * s.stride_w < s.pad_w ||
                                         (last - 1) * s.stride_w + (s.kernel_w - 1) * s.dil_w >= s.pad_w + s.in_w);
          for (std::int64_t t = 0; t < used; ++t) taps[t] = place[t] + from;
          if (borders)
            for (std::int64_t t = 0; t < used; ++t) in_taps[t] = in[t] + from;
          loops.count({taps, of_taps, count, static_cast<int>(vectors), parts.pixels * parts.pixel_bytes,
                       borders ? in_taps : nullptr, planes});
          const std::int64_t channels = std::min(8 * parts.bytes, s.in_c - 8 * part * parts.bytes);
          float* const out = static_cast<float*>(y.data) + (item * out_w + first) * s.in_c + 8 * part * parts.bytes;
          for (std::int64_t v = 0; v < vectors; ++v) {
            const std::int64_t here = std::min(parts.pixels, out_w - first - v * parts.pixels);
            const std::uint8_t* const from_planes = planes + v * vector_bytes;
            float* const to = out + v * parts.pixels * s.in_c;
            if (!borders) {
              loops.write({from_planes, here * channels, static_cast<int>(rows * s.kernel_w), y.scale, to});
              continue;
            }
            for (std::int64_t p = 0; p < here; ++p) {
              const int across =
                  inside((first + v * parts.pixels + p) * s.stride_w, s.kernel_w, s.dil_w, s.pad_w, s.in_w);
              loops.write({from_planes + p * parts.bytes, channels, rows * across, y.scale, to + p * s.in_c});
            }
          }
        }
      }
    }
  });
  return Status::ok;
}

}  // namespace bie::kernels::cpu
