// Scalar conversions between float32 and the 16-bit types, correct to the bit.
#pragma once

#include <cstdint>
#include <cstring>

#include "bie/kernels/dtype.h"
#include "kernels/arithmetic/host_device.h"

namespace bie::kernels {

BIE_HOST_DEVICE float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

BIE_HOST_DEVICE std::uint32_t bits_from_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

BIE_HOST_DEVICE float float_from_bf16(std::uint16_t half) { return float_from_bits(std::uint32_t{half} << 16); }

/// Round to nearest even; any NaN becomes the quiet NaN 0x7fc0.
BIE_HOST_DEVICE std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = bits_from_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

BIE_HOST_DEVICE float float_from_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t exponent = (half >> 10) & 31;
  const std::uint32_t fraction = half & 1023u;
  if (exponent == 31) return float_from_bits(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return float_from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/// Round to nearest even; overflow gives infinity; any NaN becomes 0x7e00 with its sign.
BIE_HOST_DEVICE std::uint16_t f16_from_float(float value) {
  const std::uint32_t bits = bits_from_float(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal result: adding 0.5 rounds at 2^-24
    const float shifted = float_from_bits(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_from_float(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// Element `index` of a float or int8 array, widened.
BIE_HOST_DEVICE float load_float(const void* data, Dtype dtype, std::int64_t index) {
  switch (dtype) {
    case Dtype::bf16: return float_from_bf16(static_cast<const std::uint16_t*>(data)[index]);
    case Dtype::f16: return float_from_f16(static_cast<const std::uint16_t*>(data)[index]);
    case Dtype::s8: return static_cast<const std::int8_t*>(data)[index];
    default: return static_cast<const float*>(data)[index];
  }
}

/// Writes float(acc) * scale converted to `dtype`, or acc itself for s32.
BIE_HOST_DEVICE void store_scaled(std::int32_t acc, float scale, void* data, Dtype dtype, std::int64_t index) {
  if (dtype == Dtype::s32) {
    static_cast<std::int32_t*>(data)[index] = acc;
    return;
  }
  const float value = static_cast<float>(acc) * scale;
  switch (dtype) {
    case Dtype::bf16: static_cast<std::uint16_t*>(data)[index] = bf16_from_float(value); break;
    case Dtype::f16: static_cast<std::uint16_t*>(data)[index] = f16_from_float(value); break;
    default: static_cast<float*>(data)[index] = value; break;
  }
}

}  // namespace bie::kernels
