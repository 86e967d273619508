// s8xs8 tile: four codes per lane and unit; SDOT.
#include "kernels/cpu/dotprod/product.h"

namespace bie::kernels::cpu::dotprod {

const Tile s8xs8_tile = byte_tile(Product::rows, 16, 4, 4, run_tile<Product>);

}  // namespace bie::kernels::cpu::dotprod
