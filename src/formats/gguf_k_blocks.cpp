#include "formats/gguf_k_blocks.h"

#include <algorithm>
#include <cmath>

#include "formats/half.h"

// Sums go through a group in order, in float32 with one rounding an operation, so that blocks are ggml's to the bit.

namespace bie::formats {
namespace {

using Byte = std::uint8_t;

constexpr int block = 256;
constexpr float least_size = 1e-15f;  // a group of smaller numbers is one of zeros

/// The nearest whole number, halves to even, within bounds.
int nearest(float value, int least, int most) {
  return static_cast<int>(std::clamp(std::nearbyint(value), static_cast<float>(least), static_cast<float>(most)));
}

void put_half(float value, Byte* to) {
  const std::uint16_t half = half_of_float(value);
  to[0] = static_cast<Byte>(half);
  to[1] = static_cast<Byte>(half >> 8);
}

float as_half(float value) { return float_of_half(half_of_float(value)); }

/// What stands for a group: x = scale * q - offset.
struct Line {
  float scale = 0, offset = 0;
};

/// How a line through a group is looked for.
struct Search {
  int most;      ///< the largest code
  float first;   ///< of the widths, which are those of most + first, most + first + 0.1, ...
  int steps;     ///< widths after the first one
  bool by_size;  ///< errors count by their size, else by their square
};

/// The line of the least weighted error among those that least squares give for the codes of several widths; the line
/// from the least number to the largest is the one to beat. The offset is at least 0.
template <int n>
Line fit_line(const float* x, const float* weights, const Search& search, Byte* codes) {
  float least = x[0], largest = x[0], sum_w = weights[0], sum_x = weights[0] * x[0];
  for (int i = 1; i < n; ++i) {
    least = std::min(least, x[i]);
    largest = std::max(largest, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  least = std::min(least, 0.0f);
  if (largest == least) {
    std::fill_n(codes, n, Byte{0});
    return {0, -least};
  }
  // From the beginning of the best line so far.
  const auto code_all = [&](float inverse, Byte* to) {
    for (int i = 0; i < n; ++i) to[i] = static_cast<Byte>(nearest(inverse * (x[i] - least), 0, search.most));
  };
  const auto error_of = [&](float scale, float begin, const Byte* of) {
    float sum = 0;
    for (int i = 0; i < n; ++i) {
      const float away = scale * static_cast<float>(of[i]) + begin - x[i];
      sum += weights[i] * (search.by_size ? std::fabs(away) : away * away);
    }
    return sum;
  };
  const auto most = static_cast<float>(search.most);
  float inverse = most / (largest - least), scale = 1 / inverse;
  code_all(inverse, codes);
  float best = error_of(scale, least, codes);
  Byte tried[n];
  for (int step = 0; step <= search.steps; ++step) {
    inverse = (search.first + 0.1f * static_cast<float>(step) + most) / (largest - least);
    code_all(inverse, tried);
    float sum_q = 0, sum_qq = 0, sum_qx = 0;
    for (int i = 0; i < n; ++i) {
      const auto q = static_cast<float>(tried[i]);
      sum_q += weights[i] * q;
      sum_qq += weights[i] * q * q;
      sum_qx += weights[i] * q * x[i];
    }
    const float divisor = sum_w * sum_qq - sum_q * sum_q;
    if (!(divisor > 0)) continue;
    float of_scale = (sum_w * sum_qx - sum_x * sum_q) / divisor;
    float begin = (sum_qq * sum_x - sum_q * sum_qx) / divisor;
    if (begin > 0) {
      begin = 0;
      of_scale = sum_qx / sum_qq;
    }
    const float error = error_of(of_scale, begin, tried);
    if (error < best) {
      std::copy_n(tried, n, codes);
      best = error;
      scale = of_scale;
      least = begin;
    }
  }
  return {scale, -least};
}

/// The number of the greatest size, the first of several.
template <int n>
float widest(const float* x) {
  float found = 0;
  for (int i = 0; i < n; ++i)
    if (std::fabs(x[i]) > std::fabs(found)) found = x[i];
  return found;
}

/// Sums over a group of x = scale * q, each number weighted by its square.
struct Sums {
  float qx = 0, qq = 0;

  void add(float x, int q, float sign = 1) {
    const float w = x * x;
    qx += sign * (w * x * static_cast<float>(q));
    qq += sign * (w * static_cast<float>(q) * static_cast<float>(q));
  }
};

/// The scale of the least weighted error among those of 19 widths, with codes of -half to half - 1, which are stored
/// with half added.
template <int n>
float fit_scale(const float* x, int half, Byte* codes) {
  const float greatest = widest<n>(x);
  std::fill_n(codes, n, Byte{0});
  if (std::fabs(greatest) < least_size) return 0;
  const auto code_all = [&](float inverse) {
    for (int i = 0; i < n; ++i) codes[i] = static_cast<Byte>(half + nearest(inverse * x[i], -half, half - 1));
  };
  const auto sums_of = [&](float inverse) {
    Sums sums;
    for (int i = 0; i < n; ++i) sums.add(x[i], nearest(inverse * x[i], -half, half - 1));
    return sums;
  };
  const auto size = static_cast<float>(half);
  float inverse = -size / greatest;
  code_all(inverse);
  const Sums first = sums_of(inverse);
  float scale = first.qq != 0 ? first.qx / first.qq : 0, best = scale * first.qx;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    inverse = -(size + 0.1f * static_cast<float>(step)) / greatest;
    const Sums sums = sums_of(inverse);
    if (sums.qq > 0 && sums.qx * sums.qx > best * sums.qq) {
      code_all(inverse);
      scale = sums.qx / sums.qq;
      best = scale * sums.qx;
    }
  }
  return scale;
}

/// The scale of codes of -4 to 3, stored with 4 added, each of which is moved where that lessens the weighted error, in
/// up to five rounds.
float move_codes(const float* x, Byte* codes) {
  constexpr int n = 16, half = 4;
  const float greatest = widest<n>(x);
  std::fill_n(codes, n, Byte{0});
  if (std::fabs(greatest) < least_size) return 0;
  const float inverse = -static_cast<float>(half) / greatest;
  int q[n];
  Sums sums;
  for (int i = 0; i < n; ++i) {
    q[i] = nearest(inverse * x[i], -half, half - 1);
    sums.add(x[i], q[i]);
  }
  bool has_moved = true;
  for (int round = 0; round < 5 && has_moved; ++round) {
    has_moved = false;
    for (int i = 0; i < n; ++i) {
      Sums others = sums;
      others.add(x[i], q[i], -1);
      if (!(others.qx > 0)) continue;
      const int moved = nearest(x[i] * others.qq / others.qx, -half, half - 1);
      if (moved == q[i]) continue;
      others.add(x[i], moved);
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

/// Four codes of 2 bits a byte: 32 bytes for 128 codes.
void put_two_bits(const Byte* codes, Byte* to) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 32; ++i) {
      const Byte* const from = codes + 128 * half + i;
      to[32 * half + i] =
          static_cast<Byte>((from[0] & 3) | (from[32] & 3) << 2 | (from[64] & 3) << 4 | (from[96] & 3) << 6);
    }
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

/// Lines with errors weighted by the size of a number and the root of the group's mean square, in multiples of 6 bits.
Lines<32> six_bit_lines(const float* x, const Search& search, Byte* codes) {
  Lines<32> lines;
  for (int g = 0; g < 8; ++g) {
    const float* const of = x + 32 * g;
    float squares = 0, weights[32];
    for (int i = 0; i < 32; ++i) squares += of[i] * of[i];
    const float mean = std::sqrt(squares / 32);
    for (int i = 0; i < 32; ++i) weights[i] = mean + std::fabs(of[i]);
    lines.of[g] = fit_line<32>(of, weights, search, codes + 32 * g);
  }
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

/// Two codes a byte: 32 bytes for 64 codes, of which the low four bits are put.
void put_four_bits(const Byte* codes, Byte* to) {
  for (int part = 0; part < 4; ++part)
    for (int i = 0; i < 32; ++i)
      to[32 * part + i] = static_cast<Byte>((codes[64 * part + i] & 15) | (codes[64 * part + 32 + i] & 15) << 4);
}

}  // namespace

float round_q2_k(const float* x, Byte* to) {
  constexpr Search search{3, -0.5f, 15, true};
  Lines<16> lines;
  Byte codes[block];
  for (int g = 0; g < 16; ++g) {
    float weights[16];
    for (int i = 0; i < 16; ++i) weights[i] = std::fabs(x[16 * g + i]);
    lines.of[g] = fit_line<16>(x + 16 * g, weights, search, codes + 16 * g);
  }
  lines.to_multiples(15);
  lines.code_again(x, search.most, codes);
  for (int g = 0; g < 16; ++g) to[g] = static_cast<Byte>(lines.scale[g] | lines.offset[g] << 4);
  put_two_bits(codes, to + 16);
  put_half(lines.scale_unit, to + 80);
  put_half(lines.offset_unit, to + 82);
  return std::max(lines.scale_unit, lines.offset_unit);
}

float round_q3_k(const float* x, Byte* to) {
  Byte codes[block];
  float scales[16];
  for (int g = 0; g < 16; ++g) scales[g] = move_codes(x + 16 * g, codes + 16 * g);
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
  for (int i = 0; i < block; ++i) to[i % 32] = static_cast<Byte>(to[i % 32] | codes[i] >> 2 << (i / 32));
  put_two_bits(codes, to + 32);
  put_half(unit, to + 108);
  return std::fabs(unit);
}

float round_q4_k(const float* x, Byte* to) {
  Byte codes[block];
  const Lines<32> lines = six_bit_lines(x, {15, -1.0f, 20, false}, codes);
  put_six_bit_lines(lines, to);
  put_four_bits(codes, to + 16);
  return std::max(lines.scale_unit, lines.offset_unit);
}

float round_q5_k(const float* x, Byte* to) {
  Byte codes[block];
  const Lines<32> lines = six_bit_lines(x, {31, -0.5f, 15, false}, codes);
  put_six_bit_lines(lines, to);
  for (int i = 0; i < block; ++i) to[16 + i % 32] = static_cast<Byte>(to[16 + i % 32] | codes[i] >> 4 << (i / 32));
  put_four_bits(codes, to + 48);
  return std::max(lines.scale_unit, lines.offset_unit);
}

float round_q6_k(const float* x, Byte* to) {
  Byte codes[block];
  float scales[16];
  for (int g = 0; g < 16; ++g) scales[g] = fit_scale<16>(x + 16 * g, 32, codes + 16 * g);
  const float greatest = widest<16>(scales);
  if (std::fabs(greatest) < least_size) return 0;
  const float inverse = -128.0f / greatest, unit = 1 / inverse;
  for (int g = 0; g < 16; ++g) {
    const int scale = nearest(inverse * scales[g], -128, 127);
    to[192 + g] = static_cast<Byte>(scale);
    const float d = as_half(unit) * static_cast<float>(scale);
    if (d == 0) continue;
    for (int i = 16 * g; i < 16 * (g + 1); ++i) codes[i] = static_cast<Byte>(nearest(x[i] / d, -32, 31) + 32);
  }
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 32; ++i) {
      const Byte* const q = codes + 128 * half + i;
      to[64 * half + i] = static_cast<Byte>((q[0] & 15) | (q[64] & 15) << 4);
      to[64 * half + 32 + i] = static_cast<Byte>((q[32] & 15) | (q[96] & 15) << 4);
      to[128 + 32 * half + i] = static_cast<Byte>(q[0] >> 4 | q[32] >> 4 << 2 | q[64] >> 4 << 4 | q[96] >> 4 << 6);
    }
  put_half(unit, to + 208);
  return std::fabs(unit);
}

}  // namespace bie::formats
