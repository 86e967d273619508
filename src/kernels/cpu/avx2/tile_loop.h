// The loop all AVX2 tiles share: lanes are outputs, an activation unit is broadcast, products gather in narrow
// partial sums that are flushed into int32 before they can overflow. Private to this folder.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/avx2/store.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::avx2 {
namespace {

/// The vectors of this folder's own products.
struct Vectors256 {
  using Vector = __m256i;
  static Vector zero() { return _mm256_setzero_si256(); }
};

/// Product: Vector and zero(); `rows` of a full tile; `lanes` outputs a vector; `unit_bytes` of a weight unit;
/// `max_units` a partial sum can hold; `late`: a sum is ready for the next product some cycles later only;
/// weights(address, part) for `parts` halves of a unit; broadcast(row, unit, part); add(partial, x, w); flush(partial,
/// acc) adds the partial sums of `lanes` outputs to acc; finish(acc, init) ends one vector of eight.
template <class Product, int R, int V>
[[gnu::always_inline]] inline void tile(const TileArgs& a) {
  constexpr int cols = 2 * Product::lanes;
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < V * Product::lanes; ++c) a.acc[r * cols + c] = 0;
  // Few rows have few sums, and each would wait for itself: neighbouring units then add to sums of their own.
  constexpr int chains = !Product::late || R > 2 ? 1 : 4 / R;
  using Vector = typename Product::Vector;
  Vector partial[chains][R][V];
  const auto clear = [&partial] {
#pragma GCC unroll 4
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) partial[c][r][v] = Product::zero();
  };
  const auto flush = [&partial, &a] {
#pragma GCC unroll 4
    for (int c = 0; c < chains; ++c)
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) Product::flush(partial[c][r][v], a.acc + r * cols + v * Product::lanes);
  };
  clear();
  std::int64_t room = Product::max_units;
  const char* panel = static_cast<const char*>(a.panel);
  for (std::int64_t t = 0; t < a.taps; ++t) {
    const char* row[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) row[r] = static_cast<const char*>(a.rows[r]) + a.tap_offsets[t];
    const auto multiply = [&](Vector(&sums)[R][V], std::int64_t u, const char* at) {
#pragma GCC unroll 2
      for (int part = 0; part < Product::parts; ++part) {
        Vector w[V];
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) w[v] = Product::weights(at + v * Product::lanes * Product::unit_bytes, part);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const Vector x = Product::broadcast(row[r], u, part);
#pragma GCC unroll 2
          for (int v = 0; v < V; ++v) sums[r][v] = Product::add(sums[r][v], x, w[v]);
        }
      }
    };
    constexpr int unit_bytes = cols * Product::unit_bytes;
    for (std::int64_t u = 0; u < a.units;) {
      const std::int64_t end = a.units - u < room ? a.units : u + room;
      room -= end - u;
      if constexpr (chains > 1)
        for (; u + chains <= end; u += chains, panel += chains * unit_bytes)
#pragma GCC unroll 4
          for (int c = 0; c < chains; ++c) multiply(partial[c], u + c, panel + c * unit_bytes);
      for (; u < end; ++u, panel += unit_bytes) multiply(partial[0], u, panel);
      if (room == 0) {
        flush();
        clear();
        room = Product::max_units;
      }
    }
  }
  flush();
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < V * Product::lanes; i += 8) {
      __m256i* acc = reinterpret_cast<__m256i*>(a.acc + r * cols + i);
      const __m256i init = _mm256_load_si256(reinterpret_cast<const __m256i*>(a.init + i));
      _mm256_store_si256(acc, Product::finish(_mm256_load_si256(acc), init));
    }
  if (a.signs != nullptr) {
    for (int r = 0; r < R; ++r) a.signs[r] = signs_of(a.acc + r * cols, a.col_count, a.scale, a.bias);
    return;
  }
  if (a.y == nullptr) return;
  for (int r = 0; r < R; ++r) store({a.acc + r * cols, a.col_count, a.scale, Dtype::f32, a.y + r * a.y_stride});
}

/// The panels of a tile in one loop: between calls a core would run out of panels to fetch.
template <class Product, int R, int V>
void tiles(TileArgs a) {
  for (;; --a.panels) {
    tile<Product, R, V>(a);
    if (a.panels == 1) return;
    a.panel = static_cast<const char*>(a.panel) + a.panel_bytes;
    a.init += a.panel_bytes / 4;
    a.y += 2 * Product::lanes;
  }
}

template <class Product, int R>
void tile_of_rows(const TileArgs& a) {
  if (a.col_count <= Product::lanes) return tiles<Product, R, 1>(a);
  return tiles<Product, R, 2>(a);
}

template <class Product>
void some_rows(const TileArgs& a) {
  switch (a.row_count) {
    case 1: return tile_of_rows<Product, 1>(a);
    case 2: return tile_of_rows<Product, 2>(a);
    case 3: return tile_of_rows<Product, 3>(a);
    case 4: return tile_of_rows<Product, 4>(a);
    default: break;
  }
  if constexpr (Product::rows > 4) {
    if (a.row_count == 5) return tile_of_rows<Product, 5>(a);
    return tile_of_rows<Product, 6>(a);
  }
}

template <class Product>
void run_tile(const TileArgs& given) {
  TileArgs a = given;
  for (int left = given.row_count;;) {
    a.row_count = left < Product::rows ? left : Product::rows;
    some_rows<Product>(a);
    left -= a.row_count;
    if (left == 0) return;
    a.rows += a.row_count;
    a.acc += a.row_count * 2 * Product::lanes;
    if (a.y != nullptr) a.y += a.row_count * a.y_stride;
    if (a.signs != nullptr) a.signs += a.row_count;
  }
}

}  // namespace
}  // namespace bie::kernels::cpu::avx2
