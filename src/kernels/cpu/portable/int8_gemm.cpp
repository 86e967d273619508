// s8xs8 tile: one code per lane and unit, as floats.
#include "kernels/cpu/portable/float_product.h"

namespace bie::kernels::cpu::portable {
namespace {

void open(const void* units_of_panel, std::int64_t units, void* opened) {
  const auto* const from = static_cast<const std::int8_t*>(units_of_panel);
  auto* const to = static_cast<float*>(opened);
  for (std::int64_t i = 0; i < units * Product::columns; ++i) to[i] = static_cast<float>(from[i]);
}

}  // namespace

const Tile s8xs8_tile = float_tile(1, open);

}  // namespace bie::kernels::cpu::portable
