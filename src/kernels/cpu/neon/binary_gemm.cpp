// b1xb1 tile: one 32-bit word of signs a lane and unit; EOR, CNT, ADD of bytes.
#include <arm_neon.h>

#include "kernels/cpu/portable/passes.h"
#include "kernels/cpu/portable/tile_loop.h"

namespace bie::kernels::cpu::neon {
namespace {

struct Product {
  using Vector = uint8x16_t;
  using Operand = uint8x16_t;
  static constexpr int rows = 4, lanes = 4, vectors = 4, unit_bytes = 4, parts = 1;
  static constexpr std::int64_t max_units = 31;  // a byte counts at most 8 per unit and holds 255
  static Vector zero() { return vdupq_n_u8(0); }
  static Operand weights(const char* at, int) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(at)); }
  static Operand broadcast(const char* row, std::int64_t unit, int) {
    return vreinterpretq_u8_u32(vld1q_dup_u32(reinterpret_cast<const std::uint32_t*>(row) + unit));
  }
  static Vector add(Vector sum, Operand x, Operand w) { return vaddq_u8(sum, vcntq_u8(veorq_u8(x, w))); }
  static void flush(Vector bytes, std::int32_t* acc) {
    const int32x4_t words = vreinterpretq_s32_u32(vpaddlq_u16(vpaddlq_u8(bytes)));
    vst1q_s32(acc, vaddq_s32(vld1q_s32(acc), words));
  }
  static std::int32_t finish(std::int32_t sum, std::int32_t k) { return k - 2 * sum; }
  static constexpr auto store = neon::store;
  static constexpr auto signs_of = neon::signs_of;
};

}  // namespace

const Tile b1xb1_tile = {Code::bits,
                         Product::rows,
                         Product::vectors* Product::lanes,
                         32,
                         4,
                         encode,
                         sign_planes,
                         run_tile<Product>,
                         store,
                         nullptr,
                         store_planes,
                         nullptr,
                         nullptr,
                         nullptr,
                         0,
                         false,
                         portable::tail};

}  // namespace bie::kernels::cpu::neon
