// The byte orders of packed binary weights in checkpoints of BITorch Engine (docs/spec/layouts.md#flat-binary-weights).
// A byte of a packed row is a byte of every layout; where it lies differs, and the order of its bits.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"

namespace bie::kernels {

enum class SignLayout : std::uint8_t {
  btc,      ///< [n/8][k/128][8][16], most significant bit first
  bstc,     ///< [k/32][n rounded up to 32][4], most significant bit first
  columns,  ///< [k/8][n], least significant bit first, as packed rows are
};

/// Where byte `byte` of row `row` lies in a layout that holds `rows` rows of `row_bytes`. constexpr for CUDA too.
constexpr std::int64_t place_in(SignLayout layout, std::int64_t row, std::int64_t byte, std::int64_t rows,
                                std::int64_t row_bytes) {
  switch (layout) {
    case SignLayout::btc: return ((row / 8 * (row_bytes / 16) + byte / 16) * 8 + row % 8) * 16 + byte % 16;
    case SignLayout::bstc: return (byte / 4 * rows + row) * 4 + byte % 4;
    default: return byte * rows + row;
  }
}

/// The byte in the layout's order of bits, or back: one is the other reversed, or both are the same.
constexpr std::uint8_t turn_bits(SignLayout layout, std::uint8_t value) {
  unsigned byte = value;
  if (layout == SignLayout::columns) return value;
  byte = (byte & 0xf0) >> 4 | (byte & 0x0f) << 4;
  byte = (byte & 0xcc) >> 2 | (byte & 0x33) << 2;
  return static_cast<std::uint8_t>((byte & 0xaa) >> 1 | (byte & 0x55) << 1);
}

/// Rows of a weight [n, row_bytes] and the layout that holds them, of layout_rows >= n.
struct SignRows {
  SignLayout layout;
  std::int64_t n, row_bytes, layout_rows;
};
/// Status::bad_shape where a size is negative.
Status signs_from_layout(const SignRows&, const std::uint8_t* bytes, std::uint8_t* packed, const Parallel&);
/// Rows beyond n become zeros.
Status signs_to_layout(const SignRows&, const std::uint8_t* packed, std::uint8_t* bytes, const Parallel&);

}  // namespace bie::kernels
