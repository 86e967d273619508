// Products of floats with floats and 16-bit floats for any CPU. Lanes are outputs, so the order of each sum is that of
// k.
#include "kernels/cpu/gemm/float_tile.h"

#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels::cpu {
namespace {

constexpr int lanes = FloatTile<float>::lanes, most = 6;

float itself(float x) { return x; }

template <class Element, float (*widen)(Element), int rows>
void multiply(const float* a, const Element* panel, std::int64_t k, float* sums, int row_sums) {
  float acc[rows][lanes];
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < lanes; ++j) acc[r][j] = sums[r * row_sums + j];
  for (std::int64_t i = 0; i < k; ++i) {
    float w[lanes];
    for (int j = 0; j < lanes; ++j) w[j] = widen(panel[i * lanes + j]);
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < lanes; ++j) acc[r][j] = __builtin_fmaf(a[i * rows + r], w[j], acc[r][j]);
  }
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < lanes; ++j) sums[r * row_sums + j] = acc[r][j];
}

template <class Element, float (*widen)(Element)>
void run(const float* a, int rows, const Element* packed, std::int64_t apart, int panels, std::int64_t k, float* sums) {
  using Multiply = void (*)(const float*, const Element*, std::int64_t, float*, int);
  static constexpr Multiply of_rows[most] = {multiply<Element, widen, 1>, multiply<Element, widen, 2>,
                                             multiply<Element, widen, 3>, multiply<Element, widen, 4>,
                                             multiply<Element, widen, 5>, multiply<Element, widen, 6>};
  for (int p = 0; p < panels; ++p) of_rows[rows - 1](a, packed + p * apart, k, sums + p * lanes, panels * lanes);
}

}  // namespace

const FloatTile<float> portable::f32_tile = {most, run<float, itself>};
const FloatTile<std::uint16_t> portable::f16_tile = {most, run<std::uint16_t, float_from_f16>};
const FloatTile<std::uint16_t> portable::bf16_tile = {most, run<std::uint16_t, float_from_bf16>};

}  // namespace bie::kernels::cpu
