// b1xb1 with pixels as lanes: windows side by side, a word of a filter is broadcast; xor, vpopcntd, add.
#include <immintrin.h>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

constexpr int lanes = 16;

/// Sixteen pixels of all taps and units. Where they lie within two vectors of one another a permutation picks them.
void gather16(const SignWindowsArgs& a, const std::int32_t* offsets, int count, std::uint32_t* out) {
  const __mmask16 used = count >= lanes ? __mmask16(0xffff) : __mmask16((1u << count) - 1);
  const __m512i at = _mm512_maskz_loadu_epi32(used, offsets);
  const std::int32_t first = offsets[0];
  const __m512i apart = _mm512_maskz_sub_epi32(used, at, _mm512_set1_epi32(first));
  const int last = _mm512_reduce_max_epi32(apart);
  for (std::int64_t t = 0; t < a.tap_count; ++t) {
    const std::uint32_t* from = a.planes + a.taps[t] + first;
    for (std::int64_t u = 0; u < a.units; ++u, from += a.plane, out += pixel_lanes) {
      __m512i words;
      if (last < lanes)
        words = _mm512_permutexvar_epi32(apart, _mm512_loadu_si512(from));
      else if (last < 2 * lanes)
        words = _mm512_permutex2var_epi32(_mm512_loadu_si512(from), apart, _mm512_loadu_si512(from + lanes));
      else
        words = _mm512_i32gather_epi32(apart, from, 4);
      _mm512_store_si512(out, words);
    }
  }
}

void gather(const SignWindowsArgs& a) {
  for (int p = 0; p < a.count; p += lanes) gather16(a, a.pixels + p, a.count - p, a.out + p);
}

template <int R, int V>
void tile(const PixelTileArgs& a) {
  __m512i sum[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = _mm512_setzero_si512();
  const std::uint32_t* x = a.windows;
  const char* w = static_cast<const char*>(a.weights);
  for (std::int64_t i = 0; i < a.words; ++i, x += pixel_lanes, w += a.weight_stride) {
    __m512i pixels[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) pixels[v] = _mm512_load_si512(x + v * lanes);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i word = _mm512_set1_epi32(reinterpret_cast<const std::int32_t*>(w)[r]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        sum[r][v] = _mm512_add_epi32(sum[r][v], _mm512_popcnt_epi32(_mm512_xor_si512(pixels[v], word)));
    }
  }
  const __m512i depth = _mm512_set1_epi32(a.depth);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = _mm512_sub_epi32(depth, _mm512_slli_epi32(sum[r][v], 1));
  if (a.y == nullptr) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) _mm512_store_si512(a.acc + r * pixel_lanes + v * lanes, sum[r][v]);
    return;
  }
  const __m512 scale = _mm512_set1_ps(a.scale);
  const __mmask16 last = static_cast<__mmask16>(0xffff >> (lanes * V - a.count));
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      _mm512_mask_storeu_ps(a.y + r * a.y_stride + v * lanes, v + 1 < V ? __mmask16(0xffff) : last,
                            _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][v]), scale));
}

template <int R>
void tile_of_rows(const PixelTileArgs& a) {
  switch ((a.count - 1) / lanes) {
    case 0: return tile<R, 1>(a);
    case 1: return tile<R, 2>(a);
    case 2: return tile<R, 3>(a);
    default: return tile<R, 4>(a);
  }
}

void run(const PixelTileArgs& a) {
  switch (a.rows) {
    case 1: return tile_of_rows<1>(a);
    case 2: return tile_of_rows<2>(a);
    case 3: return tile_of_rows<3>(a);
    case 4: return tile_of_rows<4>(a);
    case 5: return tile_of_rows<5>(a);
    default: return tile_of_rows<6>(a);
  }
}

}  // namespace

const PixelTile b1xb1_pixel_tile = {lanes, gather, run};

}  // namespace bie::kernels::cpu::avx512
