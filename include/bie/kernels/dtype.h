// Element types the kernels read and write.
#pragma once

#include <cstdint>

namespace bie::kernels {

enum class Dtype : std::uint8_t {
  f32,
  bf16,
  f16,
  s8,    ///< one signed code per byte
  s4,    ///< packed int4 row: element 2j in the high nibble of byte j
  bits,  ///< packed sign row: element 8j+i is bit i of byte j, 1 means >= 0
  s32,   ///< the exact accumulator, no scale applied
};

/// Bytes of a row of `count` elements; packed rows are rounded up to whole bytes.
constexpr std::int64_t row_bytes(Dtype dtype, std::int64_t count) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::s32: return 4 * count;
    case Dtype::bf16:
    case Dtype::f16: return 2 * count;
    case Dtype::s8: return count;
    case Dtype::s4: return (count + 1) / 2;
    case Dtype::bits: return (count + 7) / 8;
  }
  return 0;
}

constexpr bool is_float(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16; }

}  // namespace bie::kernels
