#include "formats/gguf_k_blocks.h"

#include <algorithm>
#include <cmath>

#include "formats/group_search.h"
#include "formats/line_fit.h"

namespace bie::formats {
namespace {

using Byte = std::uint8_t;

constexpr int block = 256;

/// The scale of codes of -4 to 3, stored with 4 added, each of which is moved where that lessens the weighted error, in
/// up to five rounds.
float move_codes(const float* x, Byte* codes) {
  constexpr int n = 16, half = 4;
  const float greatest = widest<n>(x);
  std::fill_n(codes, n, Byte{0});
  if (std::fabs(greatest) < least_size) return 0;
  const float inverse = -static_cast<float>(half) / greatest;
  int q[n];
  ScaleSums sums;
  for (int i = 0; i < n; ++i) {
    q[i] = nearest(inverse * x[i], -half, half - 1);
    sums.add(x[i] * x[i], x[i], q[i]);
  }
  bool has_moved = true;
  for (int round = 0; round < 5 && has_moved; ++round) {
    has_moved = false;
    for (int i = 0; i < n; ++i) {
      ScaleSums others = sums;
      others.add(x[i] * x[i], x[i], q[i], -1);
      if (!(others.qx > 0)) continue;
      const int moved = nearest(x[i] * others.qq / others.qx, -half, half - 1);
      if (moved == q[i]) continue;
      others.add(x[i] * x[i], x[i], moved);
      if (others.qq > 0 && others.qx * others.qx * sums.qq > sums.qx * sums.qx * others.qq) {
        q[i] = moved;
        sums = others;
        has_moved = true;
      }
    }
  }
  for (int i = 0; i < n; ++i) codes[i] = static_cast<Byte>(q[i] + half);
  return sums.qq > 0 ? sums.qx / sums.qq : 0;
}

/// Lines of all groups of a block, as multiples of its two 16-bit floats.
template <int n>
struct Lines {
  static constexpr int groups = block / n;
  Line of[groups];
  int scale[groups], offset[groups];
  float scale_unit = 0, offset_unit = 0;  ///< before they are rounded to 16-bit floats

  void to_multiples(int most) {
    float largest_scale = 0, largest_offset = 0;
    for (const Line& line : of) {
      largest_scale = std::max(largest_scale, line.scale);
      largest_offset = std::max(largest_offset, line.offset);
    }
    const auto times = static_cast<float>(most);
    const float inverse_scale = largest_scale > 0 ? times / largest_scale : 0;
    const float inverse_offset = largest_offset > 0 ? times / largest_offset : 0;
    for (int g = 0; g < groups; ++g) {
      scale[g] = nearest(inverse_scale * of[g].scale, 0, most);
      offset[g] = nearest(inverse_offset * of[g].offset, 0, most);
    }
    scale_unit = largest_scale > 0 ? largest_scale / times : 0;
    offset_unit = largest_offset > 0 ? largest_offset / times : 0;
  }

  /// Codes for the lines that the block holds; those of a group whose scale is 0 stay.
  void code_again(const float* x, int most, Byte* codes) const {
    for (int g = 0; g < groups; ++g) {
      const float d = as_half(scale_unit) * static_cast<float>(scale[g]);
      if (d == 0) continue;
      const float z = as_half(offset_unit) * static_cast<float>(offset[g]);
      for (int i = n * g; i < n * (g + 1); ++i) codes[i] = static_cast<Byte>(nearest((x[i] + z) / d, 0, most));
    }
  }
};

/// Lines in multiples of 6 bits; without weights errors count by the size of a number and the root of the group's mean
/// square.
Lines<32> six_bit_lines(const float* x, const float* weights, const Search& search, Byte* codes) {
  Lines<32> lines;
  float usual[block];
  for (int g = 0; g < 8 && weights == nullptr; ++g) {
    const float* const of = x + 32 * g;
    float squares = 0;
    for (int i = 0; i < 32; ++i) squares += of[i] * of[i];
    const float mean = std::sqrt(squares / 32);
    for (int i = 0; i < 32; ++i) usual[32 * g + i] = mean + std::fabs(of[i]);
  }
  LineFit<32, 8>(x, weights == nullptr ? usual : weights, search).take(codes, lines.of);
  lines.to_multiples(63);
  lines.code_again(x, search.most, codes);
  return lines;
}

/// Both 16-bit floats and eight scales and eight offsets of 6 bits in 12 bytes.
void put_six_bit_lines(const Lines<32>& lines, Byte* to) {
  put_half(lines.scale_unit, to);
  put_half(lines.offset_unit, to + 2);
  Byte* const p = to + 4;
  for (int g = 0; g < 4; ++g) {
    const int scale = lines.scale[g + 4], offset = lines.offset[g + 4];
    p[g] = static_cast<Byte>(lines.scale[g] | scale >> 4 << 6);
    p[g + 4] = static_cast<Byte>(lines.offset[g] | offset >> 4 << 6);
    p[g + 8] = static_cast<Byte>((scale & 15) | (offset & 15) << 4);
  }
}

}  // namespace

float round_q2_k(const float* x, const float* weights, Byte* codes, Byte* to) {
  const Search search{3, -0.5f, 15, weights == nullptr};
  Lines<16> lines;
  float usual[block];
  for (int i = 0; i < block; ++i) usual[i] = std::fabs(x[i]);
  const float* const counted = weights == nullptr ? usual : weights;
  for (int half = 0; half < block; half += block / 2)
    LineFit<16, 8>(x + half, counted + half, search).take(codes + half, lines.of + half / 16);
  lines.to_multiples(15);
  lines.code_again(x, search.most, codes);
  for (int g = 0; g < 16; ++g) to[g] = static_cast<Byte>(lines.scale[g] | lines.offset[g] << 4);
  put_half(lines.scale_unit, to + 80);
  put_half(lines.offset_unit, to + 82);
  return std::max(lines.scale_unit, lines.offset_unit);
}

float round_q3_k(const float* x, const float* weights, Byte* codes, Byte* to) {
  float scales[16];
  for (int g = 0; g < 16; ++g)
    scales[g] = weights == nullptr ? move_codes(x + 16 * g, codes + 16 * g)
                                   : fit_scale<16>(x + 16 * g, weights + 16 * g, 4, codes + 16 * g);
  const float greatest = widest<16>(scales);
  const float inverse = greatest != 0 ? -32.0f / greatest : 0, unit = greatest != 0 ? 1 / inverse : 0;
  Byte* const packed = to + 96;
  for (int g = 0; g < 16; ++g) {
    const int scale = nearest(inverse * scales[g], -32, 31);
    const int stored = greatest != 0 ? scale + 32 : 0;
    packed[g % 8] = static_cast<Byte>(packed[g % 8] | (stored & 15) << (g / 8 * 4));
    packed[8 + g % 4] = static_cast<Byte>(packed[8 + g % 4] | stored >> 4 << (g / 4 * 2));
    const float d = as_half(unit) * static_cast<float>(scale);
    if (d == 0) continue;
    for (int i = 16 * g; i < 16 * (g + 1); ++i) codes[i] = static_cast<Byte>(nearest(x[i] / d, -4, 3) + 4);
  }
  put_half(unit, to + 108);
  return std::fabs(unit);
}

float round_q4_k(const float* x, const float* weights, Byte* codes, Byte* to) {
  const Lines<32> lines = six_bit_lines(x, weights, {15, -1.0f, 20, false}, codes);
  put_six_bit_lines(lines, to);
  return std::max(lines.scale_unit, lines.offset_unit);
}

float round_q5_k(const float* x, const float* weights, Byte* codes, Byte* to) {
  const Lines<32> lines = six_bit_lines(x, weights, {31, -0.5f, 15, false}, codes);
  put_six_bit_lines(lines, to);
  return std::max(lines.scale_unit, lines.offset_unit);
}

float round_q6_k(const float* x, const float* weights, Byte* codes, Byte* to) {
  float scales[16];
  for (int g = 0; g < 16; ++g)
    scales[g] = fit_scale<16>(x + 16 * g, weights == nullptr ? nullptr : weights + 16 * g, 32, codes + 16 * g);
  const float greatest = widest<16>(scales);
  if (std::fabs(greatest) < least_size) {
    std::fill_n(codes, block, Byte{0});
    return 0;
  }
  const float inverse = -128.0f / greatest, unit = 1 / inverse;
  for (int g = 0; g < 16; ++g) {
    const int scale = nearest(inverse * scales[g], -128, 127);
    to[192 + g] = static_cast<Byte>(scale);
    const float d = as_half(unit) * static_cast<float>(scale);
    if (d == 0) continue;
    for (int i = 16 * g; i < 16 * (g + 1); ++i) codes[i] = static_cast<Byte>(nearest(x[i] / d, -32, 31) + 32);
  }
  put_half(unit, to + 208);
  return std::fabs(unit);
}

}  // namespace bie::formats
