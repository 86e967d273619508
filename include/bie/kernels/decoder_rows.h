// Norms, rotations, gates and sums over the rows of a decoder block. Every kernel gives the same bits.
// Source: docs/spec/language-models.md.
//
// S(x), of any number of elements: 64 partial sums from 0, element i added to sum i mod 64, i rising; then
// t(l) = t(l) + t(l + d) for all l < d, d = 32, 16, 8, 4, 2, 1. A product is added by one fma.
#pragma once

#include <cstdint>

#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// Vectors of `size` elements, of which each of `rows` rows has `per_row`, `stride` floats from row to row.
struct RowVectors {
  std::int64_t rows, per_row, size, stride;
};

struct DecoderRowsKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& size);
  /// y = (x * r) * w, r = 1 / sqrt(S(x * x) / n + eps), for each vector; w [size]. x and y have the same layout and may
  /// be the same.
  void (*rms_norm)(const RowVectors&, const float* x, const float* w, float eps, float* y, const Parallel&);
  /// Rotates pairs (a, b) of the first 2 * pairs elements of each vector in place: fma(a, c, -(b * s)) and
  /// fma(a, s, b * c). Pair i is (i, i + pairs), or (2 i, 2 i + 1) of neighbours. cosine and sine [rows][pairs].
  void (*rotate)(const RowVectors&, std::int64_t pairs, bool neighbours, const float* cosine, const float* sine,
                 float* x, const Parallel&);
  /// y = g / (1 + e(-g)) * u, elementwise; y may be g or u.
  void (*silu_gate)(std::int64_t count, const float* g, const float* u, float* y, const Parallel&);
  /// y = g / (1 + e(-z)) * u, z = g * fma(c * 0.044715, g * g, c), c = 2 sqrt(2 / pi), both factors rounded once: the
  /// GELU with a tanh, as 1 + tanh(x) = 2 / (1 + e(-2 x)). Source: Hendrycks and Gimpel 2016.
  void (*gelu_gate)(std::int64_t count, const float* g, const float* u, float* y, const Parallel&);
  /// y = (r * r) * u, r = max(g, 0), elementwise; NaN stays NaN. Source: So et al. 2021 (squared ReLU).
  void (*relu2_gate)(std::int64_t count, const float* g, const float* u, float* y, const Parallel&);
  /// x += y, elementwise.
  void (*add)(std::int64_t count, const float* y, float* x, const Parallel&);
  /// x = cap * tanh(x / cap), elementwise, tanh of exact_math.h; cap > 0. Source: Gemma 2 (Gemma Team 2024), section 2.
  void (*soft_cap)(std::int64_t count, float cap, float* x, const Parallel&);
};

/// Factors of z above.
inline constexpr float gelu_linear = 0x1.988454p+0f, gelu_cubic = 0x1.2444f2p-4f;

Table<DecoderRowsKernel> decoder_rows_table();

}  // namespace bie::kernels
