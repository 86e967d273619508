// s8xs8 tile: eight codes an output and unit; SMMLA.
#include "kernels/cpu/i8mm/tile_loop.h"

namespace bie::kernels::cpu::i8mm {
namespace {

struct Bytes {
  static constexpr int parts = 1;
  static int8x16_t weights(const std::int8_t* at, int) { return vld1q_s8(at); }
};

}  // namespace

const Tile s8xs8_tile = byte_tile(tile_rows, columns, 8, 8, run_pairs<Bytes>);

}  // namespace bie::kernels::cpu::i8mm
