// s8xs8 tile: four codes per lane and unit; vpdpbusd of unsigned q + 128 with signed weights.
#include "kernels/cpu/avx512/tile_loop.h"

namespace bie::kernels::cpu::avx512 {
namespace {

struct Product {
  static constexpr int parts = 1;
  static __m512i weights(const char* at, int) { return _mm512_load_si512(at); }
  static __m512i add(__m512i sum, __m512i x, __m512i w) { return _mm512_dpbusd_epi32(sum, x, w); }
  static __m512i finish(__m512i sum, __m512i init) { return _mm512_add_epi32(sum, init); }
};

}  // namespace

const Tile s8xs8_tile = {Code::u8_s8, most_rows,   tile_cols,    4,       4,       encode,  nullptr, run_tile<Product>,
                         store,       code_planes, store_planes, nullptr, nullptr, nullptr, 0,       false,
                         tail};

}  // namespace bie::kernels::cpu::avx512
