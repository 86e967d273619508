// Codes and scales of a group of numbers with the least weighted error among several tries.
// Source: make_qx_quants of ggml's ggml-quants.c; docs/spec/files.md#writing.
//
// Sums go through a group in order, in float32 with one rounding an operation, so that blocks have the same bits
// everywhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "formats/half.h"

namespace bie::formats {

inline constexpr float least_size = 1e-15F;  ///< a group of smaller numbers is one of zeros

/// The nearest whole number, halves to even, within bounds of fewer than 2^22 in size: what is added leaves no
/// fraction.
inline float nearest(float value, float least, float most) {
  constexpr float round = 0x1.8p23F;
  value = value < least ? least : value;
  value = value > most ? most : value;
  return (value + round) - round;
}
inline int nearest(float value, int least, int most) {
  return static_cast<int>(nearest(value, static_cast<float>(least), static_cast<float>(most)));
}

/// A 16-bit float in two bytes, the low one first.
inline void put_half(float value, std::uint8_t* to) {
  const std::uint16_t half = half_of_float(value);
  to[0] = static_cast<std::uint8_t>(half);
  to[1] = static_cast<std::uint8_t>(half >> 8);
}

inline float as_half(float value) { return float_of_half(half_of_float(value)); }

/// The number of the greatest size, the first of several.
template <int n>
float widest(const float* x) {
  float found = 0;
  for (int i = 0; i < n; ++i)
    if (std::fabs(x[i]) > std::fabs(found)) found = x[i];
  return found;
}

/// Weighted sums of x = scale * q over a group.
struct ScaleSums {
  float qx = 0, qq = 0;

  void add(float weight, float x, int q, float sign = 1) {
    qx += sign * (weight * x * static_cast<float>(q));
    qq += sign * (weight * static_cast<float>(q) * static_cast<float>(q));
  }
};

/// The scale of the least weighted error among those of 19 widths, with codes of -half to half - 1, which are stored
/// with half added.
/// @param weights  null: the squares of the numbers; else 19 widths of the other sign are tried as well.
template <int n>
float fit_scale(const float* x, const float* weights, int half, std::uint8_t* codes) {
  const float greatest = widest<n>(x);
  std::fill_n(codes, n, std::uint8_t{0});
  if (std::fabs(greatest) < least_size) return 0;
  // The numbers are multiplied by each of these; the first one counts where several are as good.
  constexpr int around = 19, padded = 40;
  float inverse[padded] = {}, qx[padded] = {}, qq[padded] = {};
  const auto size = static_cast<float>(half);
  int tries = 0;
  inverse[tries++] = -size / greatest;
  for (int step = -9; step <= 9; ++step)
    if (step != 0) inverse[tries++] = -(size + 0.1F * static_cast<float>(step)) / greatest;
  if (weights != nullptr)  // the number of the greatest size as the largest code, too
    for (int step = -9; step <= 9; ++step) inverse[tries++] = (size - 1 + 0.1F * static_cast<float>(step)) / greatest;
  const int lanes = weights == nullptr ? (around + 7) / 8 * 8 : padded;
  for (int i = 0; i < n; ++i) {
    const float weight = weights == nullptr ? x[i] * x[i] : weights[i], wx = weight * x[i];
    for (int t = 0; t < lanes; ++t) {
      const float q = nearest(inverse[t] * x[i], -size, size - 1);
      qx[t] += wx * q;
      qq[t] += weight * q * q;
    }
  }
  int best = 0;
  float scale = qq[0] != 0 ? qx[0] / qq[0] : 0, gain = scale * qx[0];
  for (int t = 1; t < tries; ++t)
    if (qq[t] > 0 && qx[t] * qx[t] > gain * qq[t]) {
      best = t;
      scale = qx[t] / qq[t];
      gain = scale * qx[t];
    }
  for (int i = 0; i < n; ++i)
    codes[i] = static_cast<std::uint8_t>(half + nearest(inverse[best] * x[i], -half, half - 1));
  return scale;
}

}  // namespace bie::formats
