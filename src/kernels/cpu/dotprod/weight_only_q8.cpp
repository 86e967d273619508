// Weight-only products with integer activations by SDOT.
#include "kernels/cpu/neon/q8_vectors.h"
#include "kernels/cpu/portable/weight_only_q8_loop.h"

namespace bie::kernels::cpu::dotprod {
namespace {

template <int width>
struct Product {
  using Sum = int32x4_t;
  using Codes = int8x16_t;
  static constexpr int rows = weight_only_q8_rows;
  static constexpr bool starts = width < 8;
  static constexpr int most = 0;
  static Codes codes(uint8x16_t field) { return neon::signed_codes<width>(field); }
  template <int r>
  static int8x16_t row(const std::int8_t* u) {
    return vld1q_s8(u + r / 4 * 16);
  }
  template <int r>
  static Sum add(Sum sum, Codes codes, int8x16_t by) {
    return vdotq_laneq_s32(sum, codes, by, r % 4);
  }
};

void run(const WeightOnlyQ8Args& a) { q8::run<neon::Q8Vectors, Product>(a); }

}  // namespace

const WeightOnlyQ8Tile weight_only_q8_tile = {weight_only_q8_rows, 1, neon::weight_only_q8_codes, run};

}  // namespace bie::kernels::cpu::dotprod
