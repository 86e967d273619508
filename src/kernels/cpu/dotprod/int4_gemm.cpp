// s4xs4 tile: that of bytes, on nibbles that are opened to bytes once per block of rows.
#include "kernels/cpu/dotprod/product.h"
#include "kernels/cpu/portable/open_nibbles.h"

namespace bie::kernels::cpu::dotprod {

const Tile s4xs4_tile = nibble_tile<4, run_tile<Product>>(Product::rows);

}  // namespace bie::kernels::cpu::dotprod
