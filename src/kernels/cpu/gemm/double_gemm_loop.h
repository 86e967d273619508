// The loop of a double_gemm tile, for instruction sets that include it: lanes are columns, so each sum has the order of
// k.
//
// `Doubles` has the type `Vector` of `lanes` doubles, the number of rows `most`, and broadcast, load, add (a fused
// multiply-add) and store.
#pragma once

#include "kernels/cpu/gemm/double_gemm.h"

namespace bie::kernels::cpu {
namespace {

constexpr int double_vectors = 3;  ///< of a row's columns

/// Not inlined, so that each number of rows has the registers to itself.
template <class Doubles, int rows>
[[gnu::noinline]] void multiply_doubles(const double* a, std::int64_t row, std::int64_t column, const double* panel,
                                        std::int64_t k, double* c) {
  constexpr int vectors = double_vectors, lanes = Doubles::lanes;
  typename Doubles::Vector acc[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) acc[r][v] = Doubles::load(c + (r * vectors + v) * lanes);
  for (std::int64_t p = 0; p < k; ++p, panel += vectors * lanes) {
    typename Doubles::Vector b[vectors];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) b[v] = Doubles::load(panel + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const typename Doubles::Vector x = Doubles::broadcast(a[r * row + p * column]);
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) acc[r][v] = Doubles::add(x, b[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) Doubles::store(c + (r * vectors + v) * lanes, acc[r][v]);
}

template <class Doubles, int rows = Doubles::most>
void run_doubles(const double* a, std::int64_t row, std::int64_t column, int count, const double* panel, std::int64_t k,
                 double* c) {
  if (count == rows) return multiply_doubles<Doubles, rows>(a, row, column, panel, k, c);
  if constexpr (rows > 1) run_doubles<Doubles, rows - 1>(a, row, column, count, panel, k, c);
}

template <class Doubles>
constexpr DoubleGemmTile double_tile() {
  return {Doubles::most, run_doubles<Doubles>};
}

}  // namespace
}  // namespace bie::kernels::cpu
