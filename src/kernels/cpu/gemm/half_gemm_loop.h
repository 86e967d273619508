// The loop of a half_gemm tile, for instruction sets that include it: lanes are outputs, so each sum has the order of
// k.
//
// `Halves` has the type `Vector` of `lanes` floats, the number of rows `most`, and zero, broadcast, load (16-bit
// floats, widened), add (a fused multiply-add) and store.
#pragma once

#include "kernels/cpu/gemm/half_gemm.h"

namespace bie::kernels::cpu {
namespace {

/// Not inlined, so that each number of rows has the registers to itself.
template <class Halves, int rows, int panels>
[[gnu::noinline]] void multiply_halves(const float* a, std::int64_t lda, const std::uint16_t* packed, std::int64_t k,
                                       float* y) {
  constexpr int vectors = HalfGemmTile::lanes / Halves::lanes;
  typename Halves::Vector acc[rows][panels][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) acc[r][p][v] = Halves::zero();
  const std::int64_t apart = HalfGemmTile::lanes * k;
  for (std::int64_t i = 0; i < k; ++i, packed += HalfGemmTile::lanes) {
    typename Halves::Vector w[panels][vectors];
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) w[p][v] = Halves::load(packed + p * apart + v * Halves::lanes);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const typename Halves::Vector x = Halves::broadcast(a[r * lda + i]);
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) acc[r][p][v] = Halves::add(x, w[p][v], acc[r][p][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        Halves::store(y + (r * panels + p) * HalfGemmTile::lanes + v * Halves::lanes, acc[r][p][v]);
}

/// As many panels as registers hold sums for, up to four.
template <class Halves>
constexpr int panels_at_once(int rows) {
  const int panels = Halves::most / rows;
  return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
}

template <class Halves, int rows>
void multiply_rows(const float* a, std::int64_t lda, const std::uint16_t* packed, int panels, std::int64_t k,
                   float* y) {
  constexpr int most = panels_at_once<Halves>(rows);
  if (panels == most) return multiply_halves<Halves, rows, most>(a, lda, packed, k, y);
  // The last panels of a weight, one at a time.
  for (int p = 0; p < panels; ++p) {
    float one[rows * HalfGemmTile::lanes];
    multiply_halves<Halves, rows, 1>(a, lda, packed + p * HalfGemmTile::lanes * k, k, one);
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < HalfGemmTile::lanes; ++j)
        y[(r * panels + p) * HalfGemmTile::lanes + j] = one[r * HalfGemmTile::lanes + j];
  }
}

template <class Halves, int most = Halves::most>
void run_halves(const float* a, std::int64_t lda, int rows, const std::uint16_t* packed, int panels, std::int64_t k,
                float* y) {
  if (rows == most) return multiply_rows<Halves, most>(a, lda, packed, panels, k, y);
  if constexpr (most > 1) run_halves<Halves, most - 1>(a, lda, rows, packed, panels, k, y);
}

template <class Halves>
constexpr HalfGemmTile half_tile() {
  return {Halves::most, panels_at_once<Halves>, run_halves<Halves>};
}

}  // namespace
}  // namespace bie::kernels::cpu
