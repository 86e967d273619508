// The loop all AVX-512 tiles share: lanes are outputs, an activation unit is broadcast, a product adds it to the sums.
// Private to this folder: everything sits in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx512 {
namespace {

constexpr int tile_rows = 6, tile_cols = 64;
constexpr int most_rows = 12;                   // with 32 outputs or fewer
constexpr std::int64_t halved_bytes = 1 << 17;  // of a panel that is read in halves: a larger one is read in order

/// Product: `parts`, the broadcasts per weight unit; weights(address, part), add(sum, x, w), finish(sum, init). R * V
/// sums, V weights and one broadcast fit the 32 registers.
template <class Product, int R, int V>
[[gnu::always_inline]] inline void tile(const TileArgs& a) {
  __m512i sum[R][V];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = _mm512_setzero_si512();
  const char* panel = static_cast<const char*>(a.panel);
  for (std::int64_t t = 0; t < a.taps; ++t) {
    const std::int32_t* row[R];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
      row[r] = reinterpret_cast<const std::int32_t*>(static_cast<const char*>(a.rows[r]) + a.tap_offsets[t]);
    for (std::int64_t u = 0; u < a.units; ++u, panel += tile_cols * 4) {
#pragma GCC unroll 2
      for (int part = 0; part < Product::parts; ++part) {
        asm volatile("" ::: "memory");  // weights are loaded again for the next part: kept, they would push sums out
        __m512i w[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) w[v] = Product::weights(panel + v * 64, part);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
          const __m512i x = _mm512_set1_epi32(row[r][u * Product::parts + part]);
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v) sum[r][v] = Product::add(sum[r][v], x, w[v]);
        }
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = Product::finish(sum[r][v], _mm512_load_si512(a.init + v * 16));
  const __m512 scale = _mm512_set1_ps(a.scale);
  const __mmask16 last = static_cast<__mmask16>(0xffff >> (16 * V - a.col_count));
  if (a.signs != nullptr) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      std::uint64_t bits = 0;
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const __mmask16 columns = v + 1 < V ? __mmask16(0xffff) : last;
        __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][v]), scale);
        if (a.bias != nullptr) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(columns, a.bias + v * 16));
        bits |= std::uint64_t{_mm512_mask_cmp_ps_mask(columns, y, _mm512_setzero_ps(), _CMP_GE_OQ)} << (v * 16);
      }
      a.signs[r] = bits;
    }
    return;
  }
  if (a.y == nullptr) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) _mm512_store_si512(a.acc + r * tile_cols + v * 16, sum[r][v]);
    return;
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      _mm512_mask_storeu_ps(a.y + r * a.y_stride + v * 16, v + 1 < V ? __mmask16(0xffff) : last,
                            _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][v]), scale));
}

/// One panel. Not inlined, so that all callers share one copy of the loop.
template <class Product, int R, int V>
[[gnu::noinline]] void tile_apart(const TileArgs& a) {
  tile<Product, R, V>(a);
}
/// Instances for every number of rows would make up a tenth of the library. Only row counts that fit registers with all
/// outputs, and the greatest one, of which long products consist, have their own.
template <class Product, int R, int V>
[[gnu::always_inline]] inline void panel_of(const TileArgs& a) {
  if constexpr (R <= tile_rows || R == most_rows)
    tile<Product, R, V>(a);
  else
    tile_apart<Product, R, V>(a);
}

inline void next_panel(TileArgs* a) {
  a->panel = static_cast<const char*>(a->panel) + a->panel_bytes;
  a->init += a->panel_bytes / 4;
  a->y += tile_cols;
}

/// Loops over the panels of a tile, because between separate calls a core would run out of panels to prefetch.
template <class Product, int R, int V>
void tiles(TileArgs a) {
  for (;; --a.panels) {
    panel_of<Product, R, V>(a);
    if (a.panels == 1) return;
    next_panel(&a);
  }
}

template <class Product, int R>
void tile_of_rows(const TileArgs& a) {
  switch ((a.col_count - 1) / 16) {
    case 0: return tiles<Product, R, 1>(a);
    case 1: return tiles<Product, R, 2>(a);
    case 2: return tiles<Product, R, 3>(a);
    default: return tiles<Product, R, 4>(a);
  }
}

/// For more rows than registers hold with all outputs: the first 32 outputs and then the others, so that each weight is
/// read once.
template <class Product, int R>
void halves(TileArgs a) {
  constexpr int half = 32;
  for (;; --a.panels) {
    TileArgs part = a;
    part.col_count = half;
    panel_of<Product, R, 2>(part);
    part.col_count = a.col_count - half;
    part.panel = static_cast<const char*>(a.panel) + half * 4;
    part.init += half;
    part.acc += half;
    if (part.y != nullptr) part.y += half;
    if (part.bias != nullptr) part.bias += half;
    std::uint64_t signs[R];
    if (part.signs != nullptr) part.signs = signs;
    if (part.col_count <= 16)
      panel_of<Product, R, 1>(part);
    else
      panel_of<Product, R, 2>(part);
    for (int r = 0; r < R && a.signs != nullptr; ++r) a.signs[r] |= signs[r] << half;
    if (a.panels == 1) return;
    next_panel(&a);
  }
}

template <class Product, int R>
void many_rows(const TileArgs& a) {
  if (a.col_count <= 16)
    tiles<Product, R, 1>(a);
  else if (a.col_count <= 32)
    tiles<Product, R, 2>(a);
  else
    halves<Product, R>(a);
}

/// Up to 12 rows.
template <class Product>
void some_rows(const TileArgs& a) {
  switch (a.row_count) {
    case 1: return tile_of_rows<Product, 1>(a);
    case 2: return tile_of_rows<Product, 2>(a);
    case 3: return tile_of_rows<Product, 3>(a);
    case 4: return tile_of_rows<Product, 4>(a);
    case 5: return tile_of_rows<Product, 5>(a);
    case 6: return tile_of_rows<Product, 6>(a);
    case 7: return many_rows<Product, 7>(a);
    case 8: return many_rows<Product, 8>(a);
    case 9: return many_rows<Product, 9>(a);
    case 10: return many_rows<Product, 10>(a);
    case 11: return many_rows<Product, 11>(a);
    default: return many_rows<Product, most_rows>(a);
  }
}

/// `most` rows at a time.
template <class Product>
void rows_of_panels(TileArgs a, int most) {
  for (int left = a.row_count;;) {
    a.row_count = left < most ? left : most;
    some_rows<Product>(a);
    left -= a.row_count;
    if (left == 0) return;
    a.rows += a.row_count;
    a.acc += a.row_count * tile_cols;
    if (a.y != nullptr) a.y += a.row_count * a.y_stride;
    if (a.signs != nullptr) a.signs += a.row_count;
  }
}

template <class Product>
void run_tile(const TileArgs& given) {
  const bool small = given.col_count <= 32 || given.taps * given.units * tile_cols * 4 <= halved_bytes;
  const int most = small ? most_rows : tile_rows;
  if (given.row_count <= most) return some_rows<Product>(given);
  TileArgs a = given;
  a.panels = 1;
  for (std::int64_t left = given.panels;; next_panel(&a)) {  // all rows of a panel before the next one
    rows_of_panels<Product>(a, most);
    if (--left == 0) return;
  }
}

}  // namespace
}  // namespace bie::kernels::cpu::avx512
