// The loop of a FloatTile, for instruction sets that include it: lanes are outputs, so each sum has the order of k.
//
// `Floats` has the type `Element` of a panel, the type `Vector` of `lanes` floats, the number of rows `most`, the
// number of vectors `sums` that registers hold beside what they are made of, and broadcast, load (of elements,
// widened), load_sums, add (a fused multiply-add) and store.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "kernels/cpu/gemm/float_tile.h"

namespace bie::kernels::cpu {
namespace {

constexpr int panel_lanes = FloatTile<float>::lanes;
constexpr int ahead = 512;  // elements that are fetched before they are needed

/// Not inlined, so that each number of rows has the registers to itself.
template <class Floats, int rows, int panels>
[[gnu::noinline]] void multiply_floats(const float* a, const typename Floats::Element* packed, std::int64_t apart,
                                       std::int64_t k, float* sums, int row_sums) {
  constexpr int vectors = panel_lanes / Floats::lanes;
  typename Floats::Vector acc[rows][panels][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        acc[r][p][v] = Floats::load_sums(sums + r * row_sums + p * panel_lanes + v * Floats::lanes);
  for (std::int64_t i = 0; i < k; ++i, packed += panel_lanes, a += rows) {
    __builtin_prefetch(a + ahead);
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) __builtin_prefetch(packed + p * apart + ahead);
    typename Floats::Vector w[panels][vectors];
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) w[p][v] = Floats::load(packed + p * apart + v * Floats::lanes);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const typename Floats::Vector x = Floats::broadcast(a[r]);
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) acc[r][p][v] = Floats::add(x, w[p][v], acc[r][p][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        Floats::store(sums + r * row_sums + p * panel_lanes + v * Floats::lanes, acc[r][p][v]);
}

/// As many panels as registers hold sums for, up to four.
template <class Floats>
constexpr int panels_at_once(int rows) {
  const int panels = Floats::sums / (rows * (panel_lanes / Floats::lanes));
  return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
}

template <class Floats>
using MultiplyFloats = void (*)(const float* a, const typename Floats::Element* packed, std::int64_t apart,
                                std::int64_t k, float* sums, int row_sums);

template <class Floats, int... less>
constexpr std::array<MultiplyFloats<Floats>, sizeof...(less)> loops_of_rows(std::integer_sequence<int, less...>) {
  return {multiply_floats<Floats, less + 1, panels_at_once<Floats>(less + 1)>...};
}

template <class Floats>
void run_floats(const float* a, int rows, const typename Floats::Element* packed, std::int64_t apart, int panels,
                std::int64_t k, float* sums) {
  static constexpr auto of_rows = loops_of_rows<Floats>(std::make_integer_sequence<int, Floats::most>());
  const MultiplyFloats<Floats> multiply = of_rows[static_cast<std::size_t>(rows - 1)];
  const int at_once = panels_at_once<Floats>(rows), row_sums = panels * panel_lanes, width = at_once * panel_lanes;
  int p = 0;
  for (; p + at_once <= panels; p += at_once)
    multiply(a, packed + p * apart, apart, k, sums + p * panel_lanes, row_sums);
  if (p == panels) return;
  // The last panels of a weight, each as often as a loop takes panels: loops of their own would be half of the code.
  float copies[FloatTile<float>::most_rows * FloatTile<float>::most_panels * panel_lanes] = {};
  for (; p < panels; ++p) {
    for (int r = 0; r < rows; ++r) std::copy_n(sums + r * row_sums + p * panel_lanes, panel_lanes, copies + r * width);
    multiply(a, packed + p * apart, 0, k, copies, width);
    for (int r = 0; r < rows; ++r) std::copy_n(copies + r * width, panel_lanes, sums + r * row_sums + p * panel_lanes);
  }
}

template <class Floats>
constexpr FloatTile<typename Floats::Element> float_tile() {
  return {Floats::most, run_floats<Floats>};
}

}  // namespace
}  // namespace bie::kernels::cpu
