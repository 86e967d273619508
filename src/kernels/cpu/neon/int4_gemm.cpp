// s4xs4 tile: four codes per lane and unit; byte i of a unit holds code i in its low nibble and code i + 2 in its high.
// SMLAL adds products in int16, of at most 64 each.
#include <arm_neon.h>

#include "kernels/cpu/portable/byte_tile.h"

namespace bie::kernels::cpu::neon {
namespace {

struct Product {
  using Vector = int16x8x2_t;
  using Operand = int8x16_t;
  static constexpr int rows = 4, lanes = 8, vectors = 2, unit_bytes = 2, parts = 2;
  static constexpr std::int64_t max_units = 255;  // two products a unit: 255 * 2 * 64 = 32640 fits an int16
  static Vector zero() { return {{vdupq_n_s16(0), vdupq_n_s16(0)}}; }
  static Operand weights(const char* at, int part) {
    const int8x16_t both = vld1q_s8(reinterpret_cast<const std::int8_t*>(at));
    return vshrq_n_s8(part == 0 ? vshlq_n_s8(both, 4) : both, 4);
  }
  static Operand broadcast(const char* row, std::int64_t unit, int part) {
    return vreinterpretq_s8_s16(vld1q_dup_s16(reinterpret_cast<const std::int16_t*>(row) + 2 * unit + part));
  }
  static Vector add(Vector sum, Operand x, Operand w) {
    return {{vmlal_s8(sum.val[0], vget_low_s8(x), vget_low_s8(w)), vmlal_high_s8(sum.val[1], x, w)}};
  }
  static void flush(Vector sum, std::int32_t* acc) {
    for (int half = 0; half < 2; ++half)
      vst1q_s32(acc + 4 * half, vpadalq_s16(vld1q_s32(acc + 4 * half), sum.val[half]));
  }
  static std::int32_t finish(std::int32_t sum, std::int32_t init) { return sum + init; }
  static constexpr auto store = neon::store;
  static constexpr auto signs_of = neon::signs_of;
};

}  // namespace

const Tile s4xs4_tile = byte_tile(Product::rows, 16, 4, 2, run_tile<Product>);

}  // namespace bie::kernels::cpu::neon
