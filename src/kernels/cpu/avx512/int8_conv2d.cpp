// s8xs8 with pixels as lanes: four channels a lane and unit; vpdpbusd of unsigned q + 128 with signed weights.
#include "kernels/cpu/avx512/pixel_loop.h"

namespace bie::kernels::cpu::avx512 {
namespace {

struct Product {
  static constexpr bool signs = false;
  static constexpr int parts = 1;
  static __m512i weight(__m512i unit, int) { return unit; }
  static __m512i add(__m512i sum, __m512i x, __m512i w) { return _mm512_dpbusd_epi32(sum, x, w); }
  static __m512i finish(__m512i sum, __m512i init) { return _mm512_add_epi32(sum, init); }
};

}  // namespace

const PixelTile s8xs8_pixel_tile = {pixel_vector, gather_windows, join_bytes, run_pixel_tile<Product>};

}  // namespace bie::kernels::cpu::avx512
