// The arithmetic of the kernels a second time, by other means than theirs: ldexp for the 16-bit types, floor for the
// rounding, shifts for the packed layouts. Everything the tests expect comes from here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "bie/kernels/dtype.h"

namespace bie::kernels::test {

struct Format16 {
  int exponent_bits, fraction_bits;
  int lowest() const { return 2 - (1 << (exponent_bits - 1)) - fraction_bits; }  // log2 of the least subnormal
  int infinity() const { return ((1 << exponent_bits) - 1) << fraction_bits; }
};
inline constexpr Format16 f16_format = {5, 10}, bf16_format = {8, 7};

inline double widened(std::uint16_t code, Format16 format) {
  const int magnitude = code & 0x7fff;
  const int exponent = magnitude >> format.fraction_bits;
  const int fraction = magnitude & ((1 << format.fraction_bits) - 1);
  double value;
  if (magnitude > format.infinity())
    value = std::numeric_limits<double>::quiet_NaN();
  else if (magnitude == format.infinity())
    value = std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(fraction, format.lowest());
  else
    value = std::ldexp(fraction + (1 << format.fraction_bits), format.lowest() + exponent - 1);
  return code & 0x8000 ? -value : value;
}

/// The integer next to `value`, of two equally near ones the even one.
inline double half_to_even(double value) {
  const double below = std::floor(value), rest = value - below;
  if (rest != 0.5) return rest < 0.5 ? below : below + 1;
  return std::fmod(below, 2) == 0 ? below : below + 1;
}

/// The nearest code of `format`; NaN is not for this function. Codes are consecutive integers within and across
/// exponents, so a carry or an overflow needs no case of its own.
inline std::uint16_t narrowed(double value, Format16 format) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | format.infinity());
  const int step = std::max(std::ilogb(magnitude) - format.fraction_bits, format.lowest());
  const double code =
      half_to_even(std::ldexp(magnitude, -step)) + std::ldexp(step - format.lowest(), format.fraction_bits);
  return static_cast<std::uint16_t>(sign | static_cast<int>(std::min<double>(code, format.infinity())));
}

/// clamp(rint(xs / step), lo, hi), the division in float32.
inline int quantized(float xs, float step, int lo, int hi) {
  const float ratio = xs / step;
  if (ratio <= static_cast<float>(lo)) return lo;
  if (ratio >= static_cast<float>(hi)) return hi;
  return static_cast<int>(half_to_even(ratio));
}

inline int sign_bit_of(float xs) { return xs > 0 || xs == 0 ? 1 : 0; }  // NaN is neither

inline float read_float(const void* data, Dtype dtype, std::int64_t index) {
  if (dtype == Dtype::s8) return static_cast<const signed char*>(data)[index];
  if (dtype == Dtype::f32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(data) + 4 * index, 4);
    return value;
  }
  std::uint16_t code;
  std::memcpy(&code, static_cast<const char*>(data) + 2 * index, 2);
  return static_cast<float>(widened(code, dtype == Dtype::f16 ? f16_format : bf16_format));
}

/// Stores the nearest value of the dtype; NaN (as a quiet one) and infinity are allowed.
inline void write_float(void* data, Dtype dtype, std::int64_t index, float value) {
  if (dtype == Dtype::f32) {
    std::memcpy(static_cast<char*>(data) + 4 * index, &value, 4);
    return;
  }
  const Format16 format = dtype == Dtype::f16 ? f16_format : bf16_format;
  const std::uint16_t nan = static_cast<std::uint16_t>(format.infinity() | (1 << (format.fraction_bits - 1)));
  const std::uint16_t code = std::isnan(value) ? nan : narrowed(value, format);
  std::memcpy(static_cast<char*>(data) + 2 * index, &code, 2);
}

/// float(acc) * scale, then one conversion.
inline void write_scaled(void* data, Dtype dtype, std::int64_t index, std::int32_t acc, float scale) {
  if (dtype == Dtype::s32)
    std::memcpy(static_cast<char*>(data) + 4 * index, &acc, 4);
  else
    write_float(data, dtype, index, static_cast<float>(acc) * scale);
}

/// Code `index` of a packed or int8 row; signs are +1 and -1.
inline int read_code(const void* row, Dtype code, std::int64_t index) {
  const unsigned char* bytes = static_cast<const unsigned char*>(row);
  if (code == Dtype::bits) return bytes[index >> 3] & (1u << (index & 7)) ? 1 : -1;
  if (code == Dtype::s8) return static_cast<signed char>(bytes[index]);
  const unsigned both = bytes[index >> 1];
  return static_cast<signed char>(index & 1 ? both << 4 : both & 0xf0u) / 16;
}

/// The inverse of read_code; for signs any value >= 0 is +1. The other codes of a byte keep their value.
inline void write_code(void* row, Dtype code, std::int64_t index, int value) {
  unsigned char* bytes = static_cast<unsigned char*>(row);
  if (code == Dtype::s8) {
    bytes[index] = static_cast<unsigned char>(value);
    return;
  }
  const bool bit = code == Dtype::bits;
  const int shift = bit ? static_cast<int>(index & 7) : index & 1 ? 0 : 4;
  const unsigned mask = (bit ? 1u : 15u) << shift;
  const unsigned field = (bit ? unsigned{value >= 0} : static_cast<unsigned>(value)) << shift;
  unsigned char& byte = bytes[bit ? index >> 3 : index >> 1];
  byte = static_cast<unsigned char>((byte & ~mask) | (field & mask));
}

}  // namespace bie::kernels::test
