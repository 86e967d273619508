// The panels of float_gemm, half_gemm and convolutions of floats. Plain code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "bie/kernels/parallel.h"
#include "kernels/cpu/gemm/float_tile.h"

namespace bie::kernels::cpu {

template <class Element>
std::size_t float_panel_bytes(std::int64_t n, std::int64_t k) {
  constexpr std::int64_t lanes = FloatTile<Element>::lanes;
  return static_cast<std::size_t>((n + lanes - 1) / lanes * k * lanes) * sizeof(Element);
}

/// Panels [k][16] of w [n, k], which may lie anywhere, one for each 16 outputs, zeros behind the last output.
template <class Element>
void pack_float_panels(const void* w, std::int64_t n, std::int64_t k, Element* packed, const Parallel& parallel) {
  constexpr std::int64_t lanes = FloatTile<Element>::lanes, size = sizeof(Element);
  constexpr std::int64_t together = 64;  // elements of k whose 16 rows are read at once
  parallel_for(parallel, (n + lanes - 1) / lanes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      Element* const panel = packed + p * k * lanes;
      const auto* const rows = static_cast<const char*>(w) + p * lanes * k * size;
      const std::int64_t count = std::min(lanes, n - p * lanes);
      if (count < lanes) std::memset(panel, 0, static_cast<std::size_t>(k * lanes * size));
      for (std::int64_t first = 0; first < k; first += together) {
        const std::int64_t here = std::min(together, k - first);
        for (std::int64_t j = 0; j < count; ++j) {
          Element part[together];
          std::memcpy(part, rows + (j * k + first) * size, static_cast<std::size_t>(here * size));
          for (std::int64_t i = 0; i < here; ++i) panel[(first + i) * lanes + j] = part[i];
        }
      }
    }
  });
}

}  // namespace bie::kernels::cpu
