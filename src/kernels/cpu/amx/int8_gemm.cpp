// s8xs8 tile: tdpbusd of unsigned q + 128 with signed weights, whose panels are those of the AVX-512 tile.
#include "kernels/cpu/amx/tile_loop.h"

namespace bie::kernels::cpu::BIE_AMX_SET {
namespace {

struct Product {
  static constexpr int unit_fours = 1;
  static __m512i finish(__m512i sum, __m512i init) { return _mm512_add_epi32(sum, init); }
};

}  // namespace

const Tile s8xs8_tile = {
    Code::u8_s8,
    tile_rows,
    tile_cols,
    4,
    4,
    avx512::encode,
    nullptr,
    run_tile<Product>,
    avx512::store,
    avx512::code_planes,
    avx512::store_planes,
    configure_tiles,
    release_tiles,
    nullptr,
    0,
    true,
    avx512::tail,
};

}  // namespace bie::kernels::cpu::BIE_AMX_SET
