// 16-bit floats, bit by bit: those of IEEE 754, and bfloat16.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace bie::formats {

inline float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // Times 2^112 what has float32's layout already; exact, numbers below the smallest normal one included.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f));
}

/// To the nearest, of two the even one.
inline std::uint16_t half_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (size >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size < 0x1p-14f)  // in steps of 2^-24
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(size * 0x1p24f)));
  const std::uint32_t rest = bits & 0x7fffffff, half = rest >> 13, tail = rest & 0x1fff;
  const std::uint32_t up = tail > 0x1000 || (tail == 0x1000 && (half & 1) != 0) ? 1 : 0;
  return static_cast<std::uint16_t>(sign | (half + up - (112u << 10)));
}

inline float float_of_bfloat(std::uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bfloat) << 16);
}

inline float half_at(const std::uint8_t* bytes) {
  return float_of_half(static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8));
}

}  // namespace bie::formats
