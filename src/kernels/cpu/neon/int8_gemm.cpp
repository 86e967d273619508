// s8xs8 tile: two codes per lane and unit; SMULL to int16, SADALP of neighbours to int32.
#include <arm_neon.h>

#include "kernels/cpu/portable/byte_tile.h"

namespace bie::kernels::cpu::neon {
namespace {

struct Product {
  using Vector = int32x4x2_t;
  using Operand = int8x16_t;
  static constexpr int rows = 4, lanes = 8, vectors = 2, unit_bytes = 2, parts = 1;
  static constexpr std::int64_t max_units = INT64_MAX;  // int32 sums need no flush
  static Vector zero() { return {{vdupq_n_s32(0), vdupq_n_s32(0)}}; }
  static Operand weights(const char* at, int) { return vld1q_s8(reinterpret_cast<const std::int8_t*>(at)); }
  static Operand broadcast(const char* row, std::int64_t unit, int) {
    return vreinterpretq_s8_s16(vld1q_dup_s16(reinterpret_cast<const std::int16_t*>(row) + unit));
  }
  static Vector add(Vector sum, Operand x, Operand w) {
    return {{vpadalq_s16(sum.val[0], vmull_s8(vget_low_s8(x), vget_low_s8(w))),
             vpadalq_s16(sum.val[1], vmull_high_s8(x, w))}};
  }
  static void flush(Vector sum, std::int32_t* acc) {
    for (int half = 0; half < 2; ++half) vst1q_s32(acc + 4 * half, vaddq_s32(vld1q_s32(acc + 4 * half), sum.val[half]));
  }
  static std::int32_t finish(std::int32_t sum, std::int32_t init) { return sum + init; }
  static constexpr auto store = neon::store;
  static constexpr auto signs_of = neon::signs_of;
};

}  // namespace

const Tile s8xs8_tile = byte_tile(Product::rows, 16, 2, 2, run_tile<Product>);

}  // namespace bie::kernels::cpu::neon
