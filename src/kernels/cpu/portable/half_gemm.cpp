// Products of floats with 16-bit floats for any CPU. Lanes are outputs, so the order of each sum is that of k.
#include "kernels/cpu/gemm/half_gemm.h"

#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels::cpu {
namespace {

constexpr int lanes = HalfGemmTile::lanes, most = 6;

template <float (*widen)(std::uint16_t), int rows>
void multiply(const float* a, std::int64_t lda, const std::uint16_t* panel, std::int64_t k, float* y, int stride) {
  float acc[rows][lanes] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    float w[lanes];
    for (int j = 0; j < lanes; ++j) w[j] = widen(panel[i * lanes + j]);
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < lanes; ++j) acc[r][j] = __builtin_fmaf(a[r * lda + i], w[j], acc[r][j]);
  }
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < lanes; ++j) y[r * stride + j] = acc[r][j];
}

template <float (*widen)(std::uint16_t)>
void run(const float* a, std::int64_t lda, int rows, const std::uint16_t* packed, int panels, std::int64_t k,
         float* y) {
  using Multiply = void (*)(const float*, std::int64_t, const std::uint16_t*, std::int64_t, float*, int);
  static constexpr Multiply of_rows[most] = {multiply<widen, 1>, multiply<widen, 2>, multiply<widen, 3>,
                                             multiply<widen, 4>, multiply<widen, 5>, multiply<widen, 6>};
  for (int p = 0; p < panels; ++p) of_rows[rows - 1](a, lda, packed + p * lanes * k, k, y + p * lanes, panels * lanes);
}

int one_panel(int) { return 1; }

}  // namespace

const HalfGemmTile portable::f16_gemm_tile = {most, one_panel, run<float_from_f16>};
const HalfGemmTile portable::bf16_gemm_tile = {most, one_panel, run<float_from_bf16>};

}  // namespace bie::kernels::cpu
