// 512-bit vector operations shared by the products of this folder. They run AVX2's loop, where lanes are outputs too.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/avx2/tile_loop.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512bw {
namespace {

struct Vectors512 {
  static constexpr int rows = 6;
  static constexpr bool late = false;
  using Vector = __m512i;
  static Vector zero() { return _mm512_setzero_si512(); }
  /// acc[0 ... 15] += sums.
  static void add_to(std::int32_t* acc, Vector sums) {
    _mm512_store_si512(acc, _mm512_add_epi32(_mm512_load_si512(acc), sums));
  }
};

}  // namespace
}  // namespace bie::kernels::cpu::avx512bw
