// The loop all pixel tiles share: lanes are pixels, a word of a filter is broadcast, a product adds it to the sums.
// Private to this folder: everything sits in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

constexpr int pixel_vector = 16;  // lanes

/// Product: whether it is one of `signs`; `parts`, the words of codes per weight unit; weight(broadcast unit, part),
/// add(sum, pixels, weight), finish(sum, init). R * V sums, V vectors of pixels and one weight fit the 32 registers.
template <class Product, int R, int V>
void pixel_tile(const PixelTileArgs& a) {
  __m512i sum[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = _mm512_setzero_si512();
  const std::uint32_t* x = a.windows;
  const char* w = static_cast<const char*>(a.weights);
  for (std::int64_t i = 0; i < a.units; ++i, w += a.weight_stride) {
#pragma GCC unroll 2
    for (int part = 0; part < Product::parts; ++part, x += pixel_lanes) {
      asm volatile("" ::: "memory");  // weights are loaded again for the next part: kept, they would push sums out
      __m512i pixels[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) pixels[v] = _mm512_load_si512(x + v * pixel_vector);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i weight = Product::weight(_mm512_set1_epi32(reinterpret_cast<const std::int32_t*>(w)[r]), part);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] = Product::add(sum[r][v], pixels[v], weight);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = Product::finish(sum[r][v], _mm512_set1_epi32(a.init[r]));
  if constexpr (Product::signs) {
    for (std::int64_t t = 0; a.outside != nullptr && t < a.taps; ++t) {
      if (a.outside[t] == 0) continue;
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i tap_sum = _mm512_set1_epi32(a.tap_sums[t * a.sums_stride + r]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
          sum[r][v] = _mm512_mask_add_epi32(sum[r][v], static_cast<__mmask16>(a.outside[t] >> (pixel_vector * v)),
                                            sum[r][v], tap_sum);
      }
    }
  }
  if (a.y == nullptr) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) _mm512_store_si512(a.acc + r * pixel_lanes + v * pixel_vector, sum[r][v]);
    return;
  }
  const __m512 scale = _mm512_set1_ps(a.scale);
  const __mmask16 last = static_cast<__mmask16>(0xffff >> (pixel_vector * V - a.count));
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      _mm512_mask_storeu_ps(a.y + r * a.y_stride + v * pixel_vector, v + 1 < V ? __mmask16(0xffff) : last,
                            _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][v]), scale));
}

template <class Product, int R>
void pixel_tile_of_rows(const PixelTileArgs& a) {
  switch ((a.count - 1) / pixel_vector) {
    case 0: return pixel_tile<Product, R, 1>(a);
    case 1: return pixel_tile<Product, R, 2>(a);
    case 2: return pixel_tile<Product, R, 3>(a);
    default: return pixel_tile<Product, R, 4>(a);
  }
}

/// Three rows are two and one, five four and one: copies of the loop for each number would be 25 KB more.
template <class Product>
void run_pixel_tile(const PixelTileArgs& given) {
  PixelTileArgs a = given;
  for (int left = given.rows;;) {
    const int rows = left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    switch (rows) {
      case 1: pixel_tile_of_rows<Product, 1>(a); break;
      case 2: pixel_tile_of_rows<Product, 2>(a); break;
      case 4: pixel_tile_of_rows<Product, 4>(a); break;
      default: pixel_tile_of_rows<Product, 6>(a);
    }
    left -= rows;
    if (left == 0) return;
    a.weights = static_cast<const char*>(a.weights) + 4 * rows;
    a.init += rows;
    a.acc += rows * pixel_lanes;
    if (a.y != nullptr) a.y += rows * a.y_stride;
    if (a.outside != nullptr) a.tap_sums += rows;
  }
}

}  // namespace
}  // namespace bie::kernels::cpu::avx512
