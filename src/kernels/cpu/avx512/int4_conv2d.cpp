// s4xs4 with pixels as lanes: a weight unit holds eight codes, which int4_gemm.cpp takes out of their nibbles.
#include "kernels/cpu/avx512/pixel_loop.h"

namespace bie::kernels::cpu::avx512 {
namespace {

struct Product {
  static constexpr bool signs = false;
  static constexpr int parts = 2;
  static __m512i weight(__m512i unit, int part) {
    asm("" : "+v"(unit));  // opened as a vector: a load broadcasts, but a register is broadcast by a shuffle
    return _mm512_and_si512(part == 0 ? _mm512_slli_epi16(unit, 4) : unit, _mm512_set1_epi8(static_cast<char>(0xf0)));
  }
  static __m512i add(__m512i sum, __m512i x, __m512i w) { return _mm512_dpbusd_epi32(sum, x, w); }
  static __m512i finish(__m512i sum, __m512i init) {
    return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_slli_epi32(init, 4)), 4);
  }
};

}  // namespace

const PixelTile s4xs4_pixel_tile = {pixel_vector, gather_windows, join_bytes, run_pixel_tile<Product>};

}  // namespace bie::kernels::cpu::avx512
