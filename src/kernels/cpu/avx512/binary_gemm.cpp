// b1xb1 tile: one 32-bit word of signs a lane and unit; xor, vpopcntd, add.
#include "kernels/cpu/avx512/tile_loop.h"

namespace bie::kernels::cpu::avx512 {
namespace {

struct Product {
  static constexpr int parts = 1;
  static __m512i weights(const char* at, int) { return _mm512_load_si512(at); }
  static __m512i add(__m512i sum, __m512i x, __m512i w) {
    return _mm512_add_epi32(sum, _mm512_popcnt_epi32(_mm512_xor_si512(x, w)));
  }
  static __m512i finish(__m512i sum, __m512i k) { return _mm512_sub_epi32(k, _mm512_slli_epi32(sum, 1)); }
};

}  // namespace

const Tile b1xb1_tile = {Code::bits, most_rows, tile_cols,    32,      4,       encode,  sign_planes, run_tile<Product>,
                         store,      nullptr,   store_planes, nullptr, nullptr, nullptr, 0,           false,
                         tail};

}  // namespace bie::kernels::cpu::avx512
