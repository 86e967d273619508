// s8xs8 tile: eight codes per output and unit; SMMLA.
#include "kernels/cpu/i8mm/tile_loop.h"

namespace bie::kernels::cpu::i8mm {

const Tile s8xs8_tile = byte_tile(tile_rows, columns, 8, 8, run_pairs);

}  // namespace bie::kernels::cpu::i8mm
