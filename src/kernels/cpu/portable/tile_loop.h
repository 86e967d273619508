// The loop of tiles that are no x86's: lanes are outputs, an activation unit is broadcast, products gather in partial
// sums that are flushed into int32 before they can overflow. Included by the sources of several folders, each of which
// has a copy of its own.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu {
namespace {

/// Product: Vector (of sums) and Operand with zero(); `rows` of a full tile; `lanes` outputs of `vectors` vectors a
/// row; `unit_bytes` of a weight unit; `max_units` a partial sum can hold; weights(address, part) for `parts` parts of
/// a unit; broadcast(row, unit, part); add(partial, x, w); flush(partial, acc) adds the partial sums of `lanes` outputs
/// to acc; finish(acc, init) ends one output; store and signs_of of its folder.
template <class Product, int R>
[[gnu::always_inline]] inline void tile_of_rows(const TileArgs& a) {
  constexpr int vectors = Product::vectors, columns = vectors * Product::lanes;
  using Vector = typename Product::Vector;
  std::int32_t* const acc = a.acc;
  for (int i = 0; i < R * columns; ++i) acc[i] = 0;
  Vector partial[R][vectors];
  const auto clear = [&partial] {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) partial[r][v] = Product::zero();
  };
  const auto flush = [&partial, acc] {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) Product::flush(partial[r][v], acc + r * columns + v * Product::lanes);
  };
  clear();
  std::int64_t room = Product::max_units;
  const char* panel = static_cast<const char*>(a.panel);
  for (std::int64_t t = 0; t < a.taps; ++t) {
    const char* row[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) row[r] = static_cast<const char*>(a.rows[r]) + a.tap_offsets[t];
    for (std::int64_t u = 0; u < a.units;) {
      const std::int64_t end = a.units - u < room ? a.units : u + room;
      room -= end - u;
      for (; u < end; ++u, panel += columns * Product::unit_bytes) {
#pragma GCC unroll 2
        for (int part = 0; part < Product::parts; ++part) {
          typename Product::Operand w[vectors];
#pragma GCC unroll 8
          for (int v = 0; v < vectors; ++v)
            w[v] = Product::weights(panel + v * Product::lanes * Product::unit_bytes, part);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            const auto x = Product::broadcast(row[r], u, part);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) partial[r][v] = Product::add(partial[r][v], x, w[v]);
          }
        }
      }
      if (room > 0) continue;
      flush();
      clear();
      room = Product::max_units;
    }
  }
  flush();
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < columns; ++c) acc[r * columns + c] = Product::finish(acc[r * columns + c], a.init[c]);
  for (int r = 0; r < R && a.signs != nullptr; ++r)
    a.signs[r] = Product::signs_of(acc + r * columns, a.col_count, a.scale, a.bias);
  for (int r = 0; r < R && a.signs == nullptr && a.y != nullptr; ++r)
    Product::store({acc + r * columns, a.col_count, a.scale, Dtype::f32, a.y + r * a.y_stride});
}

template <class Product>
void some_rows(const TileArgs& a) {
  if constexpr (Product::rows > 4) {
    if (a.row_count == 5) return tile_of_rows<Product, 5>(a);
    if (a.row_count == 6) return tile_of_rows<Product, 6>(a);
  }
  if constexpr (Product::rows > 2) {
    if (a.row_count == 3) return tile_of_rows<Product, 3>(a);
    if (a.row_count == 4) return tile_of_rows<Product, 4>(a);
  }
  if (a.row_count == 2) return tile_of_rows<Product, 2>(a);
  tile_of_rows<Product, 1>(a);
}

/// Neighbouring panels and rows, one tile of up to `rows` rows after the other.
template <int rows, int columns>
void for_tiles(const TileArgs& given, void (*tile)(const TileArgs&)) {
  for (std::int64_t p = 0; p < given.panels; ++p) {
    TileArgs a = given;
    a.panel = static_cast<const char*>(given.panel) + p * given.panel_bytes;
    a.init += p * given.panel_bytes / 4;
    if (a.y != nullptr) a.y += p * columns;
    for (int left = given.row_count; left > 0; left -= a.row_count) {
      a.row_count = left < rows ? left : rows;
      tile(a);
      a.rows += a.row_count;
      a.acc += a.row_count * columns;
      if (a.y != nullptr) a.y += a.row_count * a.y_stride;
      if (a.signs != nullptr) a.signs += a.row_count;
    }
  }
}

template <class Product>
void run_tile(const TileArgs& args) {
  for_tiles<Product::rows, Product::vectors * Product::lanes>(args, some_rows<Product>);
}

}  // namespace
}  // namespace bie::kernels::cpu
