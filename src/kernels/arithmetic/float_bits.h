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

// Both branches are computed and one is selected, so that loops over these conversions vectorise.

BIE_HOST_DEVICE float float_from_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t bias = magnitude >= 0x7c00u ? 224u << 23 : 112u << 23;  // infinity and NaN stay what they are
  const std::uint32_t normal = (magnitude << 13) + bias;
  // Zero or subnormal: fraction * 2^-24 is exact.
  const std::uint32_t small = bits_from_float(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  return float_from_bits(sign | (magnitude < 0x400u ? small : normal));
}

/// Round to nearest even; overflow gives infinity; any NaN becomes 0x7e00 with its sign.
BIE_HOST_DEVICE std::uint16_t f16_from_float(float value) {
  const std::uint32_t bits = bits_from_float(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000u) >> 13;
  // A subnormal result: adding 0.5 rounds at 2^-24.
  const std::uint32_t small = bits_from_float(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
  std::uint32_t half = magnitude < 0x38800000u ? small : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | half);
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
