// Panels of nibbles opened to bytes once per block of rows. Included by the sources of ARM's folders alone.
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/portable/byte_tile.h"

namespace bie::kernels::cpu {
namespace {

/// Units of `bytes` bytes of 16 outputs, with the first half of their codes in the low nibbles, to two units of bytes.
template <int bytes>
void open_nibbles(const void* units_of_panel, std::int64_t units, void* opened) {
  const auto* from = static_cast<const std::int8_t*>(units_of_panel);
  auto* to = static_cast<std::int8_t*>(opened);
  for (std::int64_t u = 0; u < units; ++u, to += 16 * bytes)
    for (int i = 0; i < bytes; ++i, from += 16, to += 16) {
      const int8x16_t both = vld1q_s8(from);
      vst1q_s8(to, vshrq_n_s8(vshlq_n_s8(both, 4), 4));
      vst1q_s8(to + 16 * bytes, vshrq_n_s8(both, 4));
    }
}

/// A tile of opened units, whose panels have half as many of nibbles.
template <int bytes, void (*run)(const TileArgs&)>
constexpr Tile nibble_tile(int rows) {
  Tile tile = byte_tile(rows, 16, 2 * bytes, bytes, [](const TileArgs& given) {
    TileArgs a = given;
    a.units *= 2;
    run(a);
  });
  tile.open = open_nibbles<bytes>;
  tile.opened_unit_bytes = 2 * bytes;
  return tile;
}

}  // namespace
}  // namespace bie::kernels::cpu
