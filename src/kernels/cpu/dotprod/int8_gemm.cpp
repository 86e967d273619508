// s8xs8 tile: four codes a lane and unit; SDOT.
#include "kernels/cpu/dotprod/product.h"

namespace bie::kernels::cpu::dotprod {
namespace {

struct Product : Sums {
  static constexpr int parts = 1;
  static Operand weights(const char* at, int) { return vld1q_s8(reinterpret_cast<const std::int8_t*>(at)); }
  static Operand broadcast(const char* row, std::int64_t unit, int) { return four_codes(row, unit); }
};

}  // namespace

const Tile s8xs8_tile = byte_tile(Product::rows, 16, 4, 4, run_tile<Product>);

}  // namespace bie::kernels::cpu::dotprod
