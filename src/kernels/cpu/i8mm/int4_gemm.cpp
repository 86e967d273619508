// s4xs4 tile: that of bytes, on nibbles that are opened to bytes once per block of rows.
#include "kernels/cpu/i8mm/tile_loop.h"
#include "kernels/cpu/portable/open_nibbles.h"

namespace bie::kernels::cpu::i8mm {

const Tile s4xs4_tile = nibble_tile<8, run_pairs>(tile_rows);

}  // namespace bie::kernels::cpu::i8mm
