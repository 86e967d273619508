// The tiles of float_gemm and half_gemm: products of floats with floats or 16-bit floats.
#pragma once

#include <cstdint>

namespace bie::kernels::cpu {

/// Up to `most` rows times neighbouring panels [k][16] of elements, with one fused multiply-add a term. A tile
/// multiplies several panels at once: they share the loads of a row, and few rows of one panel have too few sums to
/// hide an addition's latency.
template <class Element>
struct FloatTile {
  static constexpr int most_rows = 12, most_panels = 4, lanes = 16;

  int most;
  /// sums [rows][panels][16] += a [k][rows] times up to most_panels panels that begin `apart` elements from each other.
  void (*run)(const float* a, int rows, const Element* packed, std::int64_t apart, int panels, std::int64_t k,
              float* sums);
};

namespace portable {
extern const FloatTile<float> f32_tile;
extern const FloatTile<std::uint16_t> f16_tile, bf16_tile;
}  // namespace portable
namespace avx2 {
extern const FloatTile<float> f32_tile;
extern const FloatTile<std::uint16_t> f16_tile, bf16_tile;
}  // namespace avx2
namespace avx512bw {
extern const FloatTile<float> f32_tile;
extern const FloatTile<std::uint16_t> f16_tile, bf16_tile;
}  // namespace avx512bw

}  // namespace bie::kernels::cpu
