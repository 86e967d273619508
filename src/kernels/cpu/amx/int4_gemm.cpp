// s4xs4 tile: tdpbusd of q + 8 with weights that a panel's nibbles are opened to, sixteen times their value, because
// that is a nibble in its place (avx512/int4_gemm.cpp).
#include "kernels/cpu/amx/tile_loop.h"

namespace bie::kernels::cpu::BIE_AMX_SET {
namespace {

struct Product {
  static constexpr int unit_fours = 2;
  static __m512i finish(__m512i sum, __m512i init) {
    return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_slli_epi32(init, 4)), 4);
  }
};

void open(const void* panel, std::int64_t units, void* opened) {
  const char* from = static_cast<const char*>(panel);
  char* to = static_cast<char*>(opened);
  const __m512i high = _mm512_set1_epi8(static_cast<char>(0xf0));
  for (std::int64_t u = 0; u < units; ++u, to += 2 * panel_stride)
    for (int v = 0; v < 4; ++v, from += 64) {
      const __m512i both = _mm512_load_si512(from);
      _mm512_store_si512(to + 64 * v, _mm512_and_si512(_mm512_slli_epi16(both, 4), high));
      _mm512_store_si512(to + panel_stride + 64 * v, _mm512_and_si512(both, high));
    }
}

}  // namespace

const Tile s4xs4_tile = {
    Code::u8_s4,
    tile_rows,
    tile_cols,
    8,
    4,
    avx512::encode,
    nullptr,
    run_tile<Product>,
    avx512::store,
    avx512::code_planes,
    avx512::store_planes,
    configure_tiles,
    release_tiles,
    open,
    8,
    true,
    avx512::tail,
};

}  // namespace bie::kernels::cpu::BIE_AMX_SET
