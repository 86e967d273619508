// b1xb1 with pixels as lanes: xor, vpopcntd, add.
#include "kernels/cpu/avx512/pixel_loop.h"

namespace bie::kernels::cpu::avx512 {
namespace {

struct Product {
  static constexpr bool signs = true;
  static constexpr int parts = 1;
  static __m512i weight(__m512i unit, int) { return unit; }
  static __m512i add(__m512i sum, __m512i x, __m512i w) {
    return _mm512_add_epi32(sum, _mm512_popcnt_epi32(_mm512_xor_si512(x, w)));
  }
  static __m512i finish(__m512i sum, __m512i depth) { return _mm512_sub_epi32(depth, _mm512_slli_epi32(sum, 1)); }
};

}  // namespace

const PixelTile b1xb1_pixel_tile = {pixel_vector, gather_windows, join_bytes, run_pixel_tile<Product>};

}  // namespace bie::kernels::cpu::avx512
