// s4xs4 tile: two codes per lane and unit, the first one in the low nibble, which become two units of floats.
#include "kernels/cpu/portable/float_product.h"

namespace bie::kernels::cpu::portable {
namespace {

void open(const void* units_of_panel, std::int64_t units, void* opened) {
  constexpr int columns = Product::columns;
  const auto* from = static_cast<const std::uint8_t*>(units_of_panel);
  auto* to = static_cast<float*>(opened);
  for (std::int64_t u = 0; u < units; ++u, from += columns, to += 2 * columns)
    for (int c = 0; c < columns; ++c) {
      to[c] = static_cast<float>(((from[c] & 15) ^ 8) - 8);
      to[columns + c] = static_cast<float>((from[c] >> 4 ^ 8) - 8);
    }
}

void run(const TileArgs& given) {
  TileArgs a = given;
  a.units *= 2;
  run_tile<Product>(a);
}

constexpr Tile two_codes() {
  Tile tile = float_tile(2, open);
  tile.run = run;
  return tile;
}

}  // namespace

const Tile s4xs4_tile = two_codes();

}  // namespace bie::kernels::cpu::portable
