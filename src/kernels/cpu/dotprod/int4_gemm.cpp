// s4xs4 tile: eight codes a lane and unit; byte i of a unit holds code i in its low nibble and code i + 4 in its high.
#include "kernels/cpu/dotprod/product.h"

namespace bie::kernels::cpu::dotprod {
namespace {

struct Product : Sums {
  static constexpr int parts = 2;
  static Operand weights(const char* at, int part) {
    const int8x16_t both = vld1q_s8(reinterpret_cast<const std::int8_t*>(at));
    return vshrq_n_s8(part == 0 ? vshlq_n_s8(both, 4) : both, 4);
  }
  static Operand broadcast(const char* row, std::int64_t unit, int part) { return four_codes(row, 2 * unit + part); }
};

}  // namespace

const Tile s4xs4_tile = byte_tile(Product::rows, 16, 8, 4, run_tile<Product>);

}  // namespace bie::kernels::cpu::dotprod
