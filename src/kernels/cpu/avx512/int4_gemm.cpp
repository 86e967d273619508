// s4xs4 tile: eight codes per lane and unit; byte i of a unit holds code i in its low nibble and code i + 4 in its
// high.
// A nibble moved to the top of its byte is sixteen times its signed value, so no sign extension is needed: the sum is
// sixteen times too large and one arithmetic shift at the end undoes it (max_k_s4 keeps it inside an int32).
#include "kernels/cpu/avx512/tile_loop.h"

namespace bie::kernels::cpu::avx512 {
namespace {

struct Product {
  static constexpr int parts = 2;
  static __m512i weights(const char* at, int part) {
    const __m512i both = _mm512_load_si512(at);
    return _mm512_and_si512(part == 0 ? _mm512_slli_epi16(both, 4) : both, _mm512_set1_epi8(static_cast<char>(0xf0)));
  }
  static __m512i add(__m512i sum, __m512i x, __m512i w) { return _mm512_dpbusd_epi32(sum, x, w); }
  static __m512i finish(__m512i sum, __m512i init) {
    // Only with the start value is the sum one of q * w, not (q + 8) * w, and sure to fit: it may wrap on the way.
    return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_slli_epi32(init, 4)), 4);
  }
};

}  // namespace

const Tile s4xs4_tile = {Code::u8_s4, most_rows,   tile_cols,    8,       4,       encode,  nullptr, run_tile<Product>,
                         store,       code_planes, store_planes, nullptr, nullptr, nullptr, 0,       false,
                         tail};

}  // namespace bie::kernels::cpu::avx512
