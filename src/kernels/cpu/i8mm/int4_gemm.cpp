// s4xs4 tile: sixteen codes an output and unit; byte i of a unit holds code i in its low nibble and code i + 8 in its
// high.
#include "kernels/cpu/i8mm/tile_loop.h"

namespace bie::kernels::cpu::i8mm {
namespace {

struct Nibbles {
  static constexpr int parts = 2;
  static int8x16_t weights(const std::int8_t* at, int part) {
    const int8x16_t both = vld1q_s8(at);
    return vshrq_n_s8(part == 0 ? vshlq_n_s8(both, 4) : both, 4);
  }
};

}  // namespace

const Tile s4xs4_tile = byte_tile(tile_rows, columns, 16, 8, run_pairs<Nibbles>);

}  // namespace bie::kernels::cpu::i8mm
